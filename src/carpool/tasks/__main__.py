"""In the job: ``python -P -m carpool.tasks NAME``, the task's directory in CARPOOL_TASK.  Standard library only."""

from __future__ import annotations

import os
import pickle
import runpy
import sys
import traceback
import types
from pathlib import Path
from typing import Any

from carpool.protocol.job_variables import TASK
from carpool.tasks import transport

MAIN = "__mp_main__"


def main() -> int:
    """Run the function, keep its value or its exception; 1 if there was one."""
    task = Path(os.environ.pop(TASK))
    data = transport.read(task / transport.CALL)
    try:
        outcome: tuple[Any, ...] = ("value", _called(data))
        pickled = pickle.dumps(outcome)
    except BaseException as error:  # noqa: BLE001 - it is for whoever waits for the result
        traceback.print_exc()
        pickled = _failure(error)
        outcome = ("error",)
    transport.write(task / transport.RESULT, pickled)
    return 0 if outcome[0] == "value" else 1


def _called(data: bytes) -> Any:
    """Two pickles: where the program that submitted finds its modules, and the call, which needs that."""
    about = pickle.loads(data)
    _find_modules(about["path"], about["main"])
    function, arguments, keywords = pickle.loads(about["call"])
    return function(*arguments, **keywords)


def _find_modules(path: list[str], main: tuple[str, str] | None) -> None:
    """Functions of a script are found in the script, run as a module; as `multiprocessing` does it."""
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
        pickle.loads(pickled)  # exceptions that take other arguments than they keep
    except Exception:  # noqa: BLE001 - whatever their own code raises
        return pickle.dumps(("error", RuntimeError(f"{type(error).__name__}: {error}"), text))
    return pickled


if __name__ == "__main__":
    sys.exit(main())
