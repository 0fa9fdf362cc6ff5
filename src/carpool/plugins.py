"""Policies that do not come with Carpool: from a file, a module, or an installed package that announces policies.

Drivers of the core call `ensure_policy` before they name a policy to the core, which loads nothing itself.
"""

from __future__ import annotations

import importlib
import os
import stat
import sys
import zlib
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from carpool.core.policies import POLICIES
from carpool.core.policies.placement import PLACEMENTS
from carpool.core.policies.registry import Registry
from carpool.protocol.setting_text import split_name

#: Packages announce policies in this group: name = "package.module:Class".
GROUP = "carpool.policies"
#: The group for placement policies.
PLACEMENT_GROUP = "carpool.placements"


class NotTrusted(ValueError):
    """Another user could change the policy's file between now and the next time it is loaded."""


def ensure_policy(name: str, *, trusted: bool = False) -> None:
    """Make a policy known to the core.

    ``name``: one of Carpool's policies, an announced one, ``package.module:Class``, or ``path.py:Class``; a name that
    the program has registered itself is accepted too.  ``trusted``: load a file only if no user but this process's user
    and root can write to it.  Raises ValueError, which says what is wrong and which policies exist.
    """
    _ensure(POLICIES, GROUP, name, trusted)


def ensure_placement(name: str, *, trusted: bool = False) -> None:
    """Make a placement policy known to the core, as `ensure_policy` does for policies."""
    _ensure(PLACEMENTS, PLACEMENT_GROUP, name, trusted)


def _ensure(registry: Registry[Any], group: str, name: str, trusted: bool) -> None:
    if name in registry.available():
        return
    origin, attribute = split_name(name)
    if origin:
        registry.register(name, load_class(origin, attribute, trusted=trusted))
        return
    for entry in entry_points(group=group, name=name):
        registry.register(name, load_class(*split_name(entry.value)))
        return
    if not registry.is_registered(name):
        raise registry.unknown(name, _announced(group))


def announced_policies() -> tuple[str, ...]:
    """Names of the policies that installed packages announce, sorted."""
    return _announced(GROUP)


def announced_placements() -> tuple[str, ...]:
    """Names of the placement policies that installed packages announce, sorted."""
    return _announced(PLACEMENT_GROUP)


def _announced(group: str) -> tuple[str, ...]:
    return tuple(sorted({entry.name for entry in entry_points(group=group)}))


def load_class(origin: str, attribute: str, *, trusted: bool = False) -> type[Any]:
    """Load the class ``attribute`` from a file (``…/name.py``) or a module.  Raises ValueError."""
    try:
        module = _from_file(origin, trusted) if origin.endswith(".py") else importlib.import_module(origin)
        found: Any = getattr(module, attribute)
    except NotTrusted:
        raise
    except (ImportError, AttributeError, OSError) as error:
        raise ValueError(f"cannot load {attribute!r} from {origin!r}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ValueError(f"{origin!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(found, type):
        raise ValueError(f"{attribute!r} of {origin!r} is not a class")
    return found


def _from_file(text: str, trusted: bool) -> ModuleType:
    """Load the file as it is now: an edited policy is loaded anew, and ``__pycache__`` is ignored."""
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    source = _read_trusted(path) if trusted else path.read_bytes()
    name = f"carpool_plugin_{path.stem}_{zlib.crc32(str(path).encode()):x}"
    module = ModuleType(name)
    module.__file__ = str(path)
    code = compile(source, str(path), "exec", dont_inherit=True)
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses and pickle look their module up
    try:
        exec(code, module.__dict__)
    except BaseException:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise
    return module


def _read_trusted(path: Path) -> bytes:
    """Return the content of a file that only this process's user and root can change.

    Raises NotTrusted, which says what to do about it.
    """
    for part in {path, path.resolve()}:
        for directory in part.parents:
            _check_writers(directory, directory.stat(), shared=directory != part.parent)
    with path.open("rb") as file:
        _check_writers(path, os.fstat(file.fileno()), shared=False)
        return file.read()


def _check_writers(path: Path, status: os.stat_result, *, shared: bool) -> None:
    """Check that only this process's user and root can write to ``path``.  Raises NotTrusted.

    ``shared``: a sticky directory is accepted, because users cannot replace other users' entries there.
    """
    us = os.geteuid()
    if status.st_uid not in (us, 0):
        hint = f"copy the policy to a place of its own, or: chown {us} {path}"
        raise NotTrusted(f"the policy is not loaded: {path} belongs to uid {status.st_uid}, not to uid {us}; {hint}")
    sticky = shared and status.st_mode & stat.S_ISVTX
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
        raise NotTrusted(f"the policy is not loaded: others may write to {path}; chmod go-w {path}")
