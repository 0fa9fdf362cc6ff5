"""Run a task in its job: ``python -P -m carpool.tasks NAME``, its directory in CARPOOL_TASK.  Standard library only."""

from __future__ import annotations

import os
import pickle
import runpy
import sys
import traceback
import types
from pathlib import Path
from typing import Any

from carpool.protocol.environment import TASK
from carpool.tasks import transport

MAIN = "__mp_main__"


def main() -> int:
    """Run the function and save its value or its exception; return 1 if there was an exception, otherwise 0."""
    task = Path(os.environ.pop(TASK))
    data = transport.read(task / transport.CALL)
    try:
        outcome: tuple[Any, ...] = ("value", _called(data))
        pickled = pickle.dumps(outcome)
    except BaseException as error:  # noqa: BLE001 - the process that waits for the result gets it
        traceback.print_exc()
        pickled = _failure(error)
        outcome = ("error",)
    transport.write(task / transport.RESULT, pickled)
    return 0 if outcome[0] == "value" else 1


def _called(data: bytes) -> Any:
    """Run the call in ``data`` and return its value.

    ``data`` holds two pickles: where the submitting program finds its modules, and then the call, which needs these
    modules.
    """
    about = pickle.loads(data)
    _find_modules(about["path"], about["main"])
    function, arguments, keywords = pickle.loads(about["call"])
    return function(*arguments, **keywords)


def _find_modules(path: list[str], main: tuple[str, str] | None) -> None:
    """Set ``sys.path``, and run the script as a module so that its functions are found, as `multiprocessing` does."""
    sys.path += [entry for entry in path if entry not in sys.path]
    if main is None:
        return
    module = types.ModuleType(MAIN)
    kind, name = main
    run = runpy.run_module if kind == "module" else runpy.run_path
    module.__dict__.update(run(name, run_name=MAIN))
    sys.modules["__main__"] = sys.modules[MAIN] = module


def _failure(error: BaseException) -> bytes:
    text = "".join(traceback.format_exception(error))
    try:
        pickled = pickle.dumps(("error", error, text))
        pickle.loads(pickled)  # fails for exceptions whose constructor takes other arguments than `args`
    except Exception:  # noqa: BLE001 - code of the exception's class may raise anything
        return pickle.dumps(("error", RuntimeError(f"{type(error).__name__}: {error}"), text))
    return pickled


if __name__ == "__main__":
    sys.exit(main())
