"""Ask the estimators: a process of the job's own interpreter, which writes its answers to a file and is ended in time.

`estimated` asks them about jobs that are submitted with ``--estimate``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import click
import msgspec

import carpool
from carpool.cli.base.daemon_start import connected
from carpool.cli.base.options_common import plural
from carpool.cli.render.progress import Progress
from carpool.cli.request.command_line import python_for
from carpool.options.requests import named_devices
from carpool.protocol.api import DeviceInfo, ErrorInfo, RunInfo, SubmitManyRequest, SubmitRequest
from carpool.protocol.client import ClientError, DaemonClient
from carpool.protocol.environment import parameter_variables
from carpool.protocol.estimates import Answer, Question, Subject

BOOTSTRAP = Path(carpool.__file__).with_name("estimate") / "bootstrap.py"
DEFAULT_LIMIT_S = 60.0
LONGER = "allow more time: --time-limit 5m"
OTHERWISE = "describe the model: --model FILE.py:FUNCTION"


def interpreter(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Return the Python that the command names, else the Python that `python_for` finds."""
    if argv and Path(argv[0]).name.startswith("python"):
        return shutil.which(argv[0], path=env.get("PATH", os.defpath)) or argv[0]
    return python_for(env)


def ask(question: Question, python: str, directory: Path, env: Mapping[str, str]) -> list[Answer]:
    """Return one answer per estimator, in the order of the question; an answer that came too late is an error."""
    with tempfile.TemporaryFile() as answers, tempfile.TemporaryFile() as complaints:
        process = _start(python, directory, env, answers, complaints)
        in_time = True
        try:
            process.communicate(msgspec.json.encode(question), question.limit_s)
        except subprocess.TimeoutExpired:
            in_time = False
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        found = {answer.estimator: answer for answer in _decode(answers)}
        missing = _why(question, in_time, process.returncode, complaints)
    return [found.get(name) or Answer(name, error=missing) for name in question.estimators]


def earlier_runs(home: Path, argv: list[str], cwd: str) -> list[RunInfo]:
    """Return runs of this command from the journal of a running daemon; none if no daemon runs.  Starts no daemon."""
    try:
        with DaemonClient(home) as client:
            return client.history(argv, cwd).runs
    except ClientError:
        return []


def _start(
    python: str, directory: Path, env: Mapping[str, str], answers: IO[bytes], complaints: IO[bytes]
) -> subprocess.Popen[bytes]:
    # The script must leave nothing behind, not even compiled modules.
    quiet = {**env, "PYTHONDONTWRITEBYTECODE": "1", "OMP_WAIT_POLICY": "passive"}
    return subprocess.Popen(
        [python, str(BOOTSTRAP), str(answers.fileno())],
        cwd=directory,
        env=quiet,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=complaints,
        pass_fds=[answers.fileno()],
        start_new_session=True,
    )


def _decode(answers: IO[bytes]) -> list[Answer]:
    answers.seek(0)
    return [msgspec.json.decode(line, type=Answer) for line in answers if line.endswith(b"\n")]


def _why(question: Question, in_time: bool, status: int, complaints: IO[bytes]) -> ErrorInfo:
    if not in_time:
        hint = LONGER if question.subject.model else f"{LONGER}; or {OTHERWISE}"
        return ErrorInfo("timeout", f"no answer within {question.limit_s:g} s", hint)
    complaints.seek(0)
    lines = complaints.read().decode(errors="replace").strip().splitlines()
    said = lines[-1] if lines else f"exit status {status}"
    hint = "run the model's function by hand to see its error" if question.subject.model else OTHERWISE
    return ErrorInfo("estimator_failed", f"the script or the estimator ended the process: {said}", hint)


def estimated_many(request: SubmitManyRequest, name: str, home: Path) -> SubmitManyRequest:
    """Add estimates to all jobs of one submission; jobs whose memory is given keep theirs."""
    whole = [msgspec.structs.replace(job, env=request.env | job.env) for job in request.jobs]
    found = estimated(whole, name, home)
    jobs = [msgspec.structs.replace(job, env=own.env) for job, own in zip(found, request.jobs, strict=True)]
    return msgspec.structs.replace(request, jobs=jobs)


def estimated(requests: Sequence[SubmitRequest], name: str, home: Path) -> list[SubmitRequest]:
    """Return the requests with the estimator's figures, one after the other; jobs without an estimate, unchanged.

    Reasons for missing estimates are printed on standard error, each once.
    """
    with connected(home) as client:
        devices = client.devices()
    found, failed = [], dict[str, int]()
    with Progress(f"estimating {plural(len(requests), 'job')}") as progress:
        for number, request in enumerate(requests, 1):
            progress.update(f"estimating job {number} of {len(requests)}")
            answer = _answer(request, name, devices, home)
            if answer is not None and answer.prediction is None:
                why = answer.error.message if answer.error else "no reason given"
                failed[why] = failed.get(why, 0) + 1
            found.append(_with(request, answer))
    _tell(failed, len(requests))
    return found


def _answer(request: SubmitRequest, name: str, devices: Sequence[DeviceInfo], home: Path) -> Answer | None:
    """Ask the estimator about a job; None if the memory is given, or the daemon will refuse the job."""
    kind = _kind(request, devices)
    if kind is None or request.persistent_bytes is not None:
        return None
    runs = earlier_runs(home, request.argv, request.cwd)
    question = Question(Subject(request.argv, request.cwd, history=runs, device=kind), [name], DEFAULT_LIMIT_S)
    env = request.env | parameter_variables(request.parameters)
    (answer,) = ask(question, interpreter(request.argv, env), Path(request.cwd), env)
    return answer


def _kind(request: SubmitRequest, devices: Sequence[DeviceInfo]) -> str | None:
    """Return the kind of device the job may use: cuda if a GPU is among them, because of a context's memory."""
    names = named_devices(request)
    kinds = {device.kind for device in devices if names is None or device.id in names}
    return "cuda" if "cuda" in kinds else next(iter(kinds), None)


def _with(request: SubmitRequest, answer: Answer | None) -> SubmitRequest:
    if answer is None or answer.prediction is None:
        return request
    persistent, ephemeral = answer.prediction.persistent, answer.prediction.ephemeral
    return msgspec.structs.replace(
        request, persistent_bytes=persistent, ephemeral_bytes=ephemeral, estimate_source=answer.estimator
    )


def _tell(failed: Mapping[str, int], of: int) -> None:
    for why, count in failed.items():
        which = "" if of == 1 else f" for {count} of {of} jobs"
        each = "the job is measured when it runs" if of == 1 else "they are measured when they run"
        click.echo(f"carpool: no estimate{which}: {why}; {each}", err=True)
