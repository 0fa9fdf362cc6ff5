"""Policies that do not come with Carpool: from a file, a module, or an installed package that announces them.

Drivers call `ensure_policy` before they name a policy to the core, which loads nothing itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from carpool.core.policies import available_policies, register_policy

#: Packages announce policies in this group: name = "package.module:Class".
GROUP = "carpool.policies"


def ensure_policy(name: str) -> None:
    """Make a policy known to the core: one of Carpool's, an announced one, ``package.module:Class`` or
    ``path.py:Class``.

    Raises ValueError that says what is wrong and which policies there are.
    """
    if name in available_policies():
        return
    origin, colon, attribute = name.rpartition(":")
    if colon:
        register_policy(name, load_object(origin, attribute))
        return
    for entry in entry_points(group=GROUP, name=name):
        try:
            register_policy(name, entry.load())
        except (ImportError, AttributeError) as error:
            raise ValueError(f"cannot load the policy {name!r} of {entry.value}: {error}") from error
        return
    known = ", ".join((*available_policies(), *announced_policies()))
    raise ValueError(f"unknown policy {name!r}; known policies: {known}; or one of yours, as path.py:Class")


def announced_policies() -> tuple[str, ...]:
    """Names of the policies that installed packages announce, sorted."""
    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)}))


def absolute_name(name: str) -> str:
    """The same policy for a process with another working directory: a path is made absolute."""
    origin, colon, attribute = name.rpartition(":")
    return f"{Path(origin).expanduser().resolve()}:{attribute}" if colon and origin.endswith(".py") else name


def load_object(origin: str, attribute: str) -> Any:
    """What a file (``…/name.py``) or a module calls ``attribute``.  Raises ValueError."""
    try:
        module = _from_file(origin) if origin.endswith(".py") else importlib.import_module(origin)
        return getattr(module, attribute)
    except (ImportError, AttributeError, OSError) as error:
        raise ValueError(f"cannot load {attribute!r} from {origin!r}: {error}") from error
    except Exception as error:
        raise ValueError(f"{origin!r} cannot be imported: {type(error).__name__}: {error}") from error


def _from_file(text: str) -> ModuleType:
    """The file as it is now: an edited policy is loaded anew."""
    path = Path(text).expanduser().resolve()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    name = f"carpool_plugin_{path.stem}_{abs(hash(str(path))):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up
    spec.loader.exec_module(module)
    return module
