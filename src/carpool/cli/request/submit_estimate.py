"""``carpool submit --estimate``: estimates are added to the jobs before any job is submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import msgspec

from carpool.cli.base.daemon_start import connected
from carpool.cli.base.options_common import plural
from carpool.cli.render.progress import Progress
from carpool.cli.request.estimator_process import DEFAULT_LIMIT_S, ask, earlier_runs, interpreter
from carpool.protocol.api import DeviceInfo, SubmitManyRequest, SubmitRequest
from carpool.protocol.environment import parameter_variables
from carpool.protocol.estimates import Answer, Question, Subject


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
    names = request.device.split(",") if request.device else None
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
