"""A submitted job as a Python object."""

from __future__ import annotations

import os
import pickle
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from carpool.protocol.client import DaemonClient
from carpool.protocol.paths import default_home
from carpool.tasks import transport
from carpool.tasks.__main__ import MAIN

if TYPE_CHECKING:
    from carpool.protocol.api import JobInfo

T = TypeVar("T")
POLL_S = 60.0  # of one request; the end itself is reported at once


class JobFailed(Exception):
    """Raised for a job that did not succeed; ``info`` has its outcome, exit code and reason."""

    def __init__(self, info: JobInfo) -> None:
        reason = f": {info.reason.text}" if info.reason is not None and info.reason.text else ""
        code = f" (exit code {info.exit_code})" if info.exit_code else ""
        super().__init__(f"job {info.id} {str(info.outcome).replace('_', ' ')}{code}{reason}")
        self.info = info


class RemoteTraceback(Exception):
    """The cause of an exception that a function raised in a job: the job's own traceback, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(f"\n\n{text}")


class SubmittedJob(Generic[T]):
    """One job; public as `carpool.Job`.  Can be pickled.  Methods may raise `ClientError` where no daemon answers.

    ``carpool.Job(7)`` is the job with that id; only the program that submitted a function can read the function's
    value.
    """

    def __init__(self, number: int, home: str | os.PathLike[str] | None = None, task: Path | None = None) -> None:
        self.id = number
        self._home = default_home() if home is None else Path(home)
        self._task = task

    def __repr__(self) -> str:
        return f"carpool.Job({self.id})"

    def info(self) -> JobInfo:
        """Return all that `carpool show --json` prints."""
        with DaemonClient(self._home) as client:
            return client.job(self.id)

    def done(self) -> bool:
        """Whether the job has ended."""
        return self.info().outcome is not None

    def wait(self, timeout: float | None = None) -> JobInfo:
        """Wait until the job has ended, in any way, and return it.  Raises TimeoutError after ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with DaemonClient(self._home) as client:
            while True:
                left = POLL_S if deadline is None else min(POLL_S, max(0.0, deadline - time.monotonic()))
                info = client.wait(self.id, left)
                if info.outcome is not None:
                    return info
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(f"job {self.id} has not ended after {timeout} s: it is {info.phase}")

    def result(self, timeout: float | None = None) -> T:
        """Wait until the job has ended and return the value of its function; None for a command that has succeeded.

        Raises the exception of the function, `JobFailed` for a job that ended otherwise, and TimeoutError.
        """
        info = self.wait(timeout)
        found = ("value", None) if self._task is None else self._kept(self._task)
        if found is not None and found[0] == "error" and info.exit_code == 1:
            raise cast(BaseException, found[1]) from RemoteTraceback(str(found[2]))
        if info.outcome != "succeeded" or found is None:
            raise JobFailed(info)
        return cast(T, found[1])

    def _kept(self, task: Path) -> tuple[object, ...] | None:
        try:
            data = transport.read(task / transport.RESULT)
        except FileNotFoundError:
            return None
        # The module name in the job of a class that this script defines.
        sys.modules.setdefault(MAIN, sys.modules["__main__"])
        found: tuple[object, ...] = pickle.loads(data)
        return found

    def log(self) -> str:
        """Return the job's output as far as the daemon keeps it, or the content of the file of ``output``."""
        info = self.info()
        if info.output:
            path = Path(info.output)
            return path.read_text(errors="replace") if path.exists() else ""
        with DaemonClient(self._home) as client:
            return b"".join(client.logs(self.id)).decode(errors="replace")

    def cancel(self) -> None:
        """End the job early; a job that has ended stays as it is."""
        with DaemonClient(self._home) as client:
            client.cancel(self.id)
