"""A daemon of the source tree that shares the first GPU, and jobs that it runs."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.protocol.setting_text import setting_text
from carpool.runtime.native import library_path
from tools.gpu_check.registry import needs_packages, require
from tools.gpu_check.scripts import PROGRAMS

if TYPE_CHECKING:
    from carpool.protocol.api import JobInfo
    from tests.live import LiveDaemon

SOURCE = Path(__file__).resolve().parents[2] / "src"
NEEDED = ("aiohttp", "msgspec", "prometheus_client", "pynvml")
#: A turn may change hands at every iteration, whatever a switch costs, and all jobs belong to one lane.
EAGER = {"quantum_us": 0, "max_switch_share_ppm": 1_000_000, "max_move_share_ppm": 1_000_000, "max_lanes": 1}
#: Turns as they are by default: a switch takes at most 2 % of a turn.
DEFAULT_TURNS = {"max_switch_share_ppm": 20_000, "max_move_share_ppm": 50_000, "quantum_us": 50_000}
JOB_S = 300.0


class Daemon:
    """What checks ask of one that runs."""

    def __init__(self, live: LiveDaemon) -> None:
        self.home, self.client = live.home, live.client
        self._logs = (f"{live.home}/cuda-job{number}.log" for number in itertools.count(1))

    def submit(self, program: str, *arguments: str, checkpoint: bool = False, **env: str) -> int:
        from carpool.protocol.api import SubmitRequest
        from tests.live import python_path

        argv = [sys.executable, os.fspath(PROGRAMS / program), *arguments]
        own = {"PYTHONPATH": python_path(SOURCE), "CUDA_LOG_FILE": next(self._logs)}
        environment = dict(os.environ) | own  # some engines bring nothing of Carpool
        request = SubmitRequest(argv=argv, cwd=str(self.home), env=environment | env, checkpoint=checkpoint)
        return self.client.submit(request)

    def end(self, job: int) -> JobInfo:
        """As it was when it had ended."""
        info = self.client.wait(job, JOB_S)
        require(info.phase == "ended", f"job {job} has not ended after {JOB_S:.0f} s: {info.phase}, {info.reason}")
        return info

    def output(self, job: int) -> str:
        """What it printed last.  Raises AssertionError with everything that it printed if it failed."""
        info, text = self.end(job), self.log(job)
        last = "".join(text.splitlines()[-1:])
        require(info.outcome == "succeeded", f"job {job} {info.outcome} ({info.exit_code}): {last}\n{text[-1500:]}")
        require("carpool: warning" not in text, f"job {job} was not shared:\n{text[-1500:]}")
        return text.strip().splitlines()[-1]

    def log(self, job: int) -> str:
        return b"".join(self.client.logs(job)).decode()

    def kill_job(self, job: int) -> None:
        pid = self.client.job(job).pid
        require(pid is not None, f"job {job} does not run")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)


@contextmanager
def daemon(
    size: str = "", *, sharing: str = "timeslice", close_lanes: bool = False, **settings: int
) -> Iterator[Daemon]:
    """``size``: how much of the GPU's memory it shares, all by default.  Raises Skip where it cannot run.

    Its home stays in the temporary directory, which goes with the check's process (`apart.run`).
    """
    needs_packages(*NEEDED)
    require(library_path().exists(), "libcarpool is not built: python3 src/native/build.py")
    options = [f"--sharing={sharing}", *(f"--set={setting_text(*pair)}" for pair in (EAGER | settings).items())]
    options += ["--debug-close-lanes"] if close_lanes else []
    from tests.live import LiveDaemon, python_path

    home = Path(tempfile.mkdtemp(prefix="carpool-gpu-"))
    own = os.environ | {"PYTHONPATH": python_path(SOURCE), "CUDA_LOG_FILE": f"{home}/cuda.log"}
    live = LiveDaemon(home, ["--device=cuda:0" + (f":{size}" if size else ""), *options], dict(os.environ), own)
    try:
        yield Daemon(live)
    except BaseException as error:
        error.add_note(live.story())
        raise
    finally:
        live.close()
