"""The journal in the daemon's terms: which statement records what, and what is read back at the start."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from carpool.core.decision import Placement
from carpool.core.model import Attempt, DeviceId, Estimate, JobId, JobPhase, Memory, Outcome, Reason, Usage
from carpool.core.stats import quantile
from carpool.daemon.jobs.info import iteration_us
from carpool.daemon.jobs.table import Ended, EngineChoice, JobRecord, command_key
from carpool.daemon.journal.writer import Journal
from carpool.daemon.system.clock import wall_us
from carpool.protocol.api import RunInfo, SubmitRequest
from carpool.protocol.paths import JobFiles

_INSERT = """INSERT INTO jobs (id, owner, gid, spec, env, estimate, submitted_us, engine_automatic, engine_why, phase)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued')"""
_STARTED = "UPDATE jobs SET phase = 'running', device = ?, started_us = ? WHERE id = ?"
_ENDED = """UPDATE jobs SET phase = 'ended', device = ?, outcome = ?, exit_code = ?, signal = ?, reason_code = ?,
  env = '{}', reason_text = ?, persistent_bytes = ?, ephemeral_bytes = ?, iterations = ?, device_us = ?, switches = ?,
  residue_bytes = ?, started_us = ?, ended_us = ?, out_bytes = ?, out_us = ?, in_bytes = ?, in_us = ? WHERE id = ?"""
_UNGATED = "INSERT OR REPLACE INTO beside VALUES (?, ?, ?)"
_NOT_UNGATED = "DELETE FROM beside WHERE command_key = ?"
_USE = "use:"  # before the job's number, in the journal's table `meta`
_PLACED = "INSERT OR REPLACE INTO placements VALUES (?, ?, ?)"
_ATTEMPT = "INSERT OR REPLACE INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_RAN = "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)"
_FORGET = "DELETE FROM runs WHERE command_key = ? AND ended_us < ?"
KEPT_RUNS = 20  # of each command
SHARE_PPM = 950_000  # of them must have got by with what the next one is believed to need
_COLUMNS = """id, owner, gid, spec, env, estimate, submitted_us, cancelled, phase, device, outcome, exit_code, signal,
  reason_code, reason_text, persistent_bytes, ephemeral_bytes, iterations, device_us, switches, residue_bytes,
  started_us, ended_us, out_bytes, out_us, in_bytes, in_us, engine_automatic, engine_why"""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of a command that ended well."""

    ended_us: int
    persistent: int  # bytes, peak
    ephemeral: int
    iterations: int
    iteration_us: int | None


Runs = dict[str, deque[RunRecord]]  # command key: the last runs, the newest last


_ATTEMPTS = """job, device, started_us, ended_us, exit_code, signal, out_of_memory, outgrown_bytes, reason,
  persistent_bytes, ephemeral_bytes, estimate"""


def log_name(attempt: int) -> str:
    """The file that an attempt writes its output to, in the job's directory."""
    return JobFiles(Path(), attempt).log.name


class JournalStore:
    """Writes through the journal's thread; keeps `runs` and `beside` in memory, too (a few small rows per command)."""

    def __init__(self, journal: Journal, history: Runs, ungated: dict[str, JobId] | None = None) -> None:
        self._journal = journal
        self._history = history
        self._ungated = ungated or {}

    def submitted(self, jobs: Sequence[JobRecord]) -> asyncio.Future[None]:
        """Done when all of them are on the disk; if that fails, none is."""
        return self._journal.durable(_INSERT, *map(_row, jobs))

    def flushed(self) -> asyncio.Future[None]:
        """Done when everything that has happened so far is on the disk."""
        return self._journal.flushed()

    def cancelled(self, job: JobRecord) -> asyncio.Future[None]:
        return self._journal.durable("UPDATE jobs SET cancelled = 1 WHERE id = ?", (job.id,))

    def placed(self, job: JobRecord, decision: Placement | None) -> None:
        """Where, and what that was decided on."""
        devices = msgspec.json.encode([job.device, *job.further]).decode()
        self._journal.owe(_PLACED, [(job.id, devices, msgspec.json.encode(decision).decode())])

    def used(self, job: JobRecord) -> None:
        """How its present attempt has used its device so far; that says at its end how the next run is best started."""
        text = msgspec.json.encode((job.attempt, job.was_seated, job.ran_ungated)).decode()
        self._journal.owe("INSERT OR REPLACE INTO meta VALUES (?, ?)", [(f"{_USE}{job.id}", text)])

    def started(self, job: JobRecord) -> None:
        self._journal.owe(_STARTED, [(job.device, job.started_us, job.id)])

    def failed(self, job: JobRecord) -> asyncio.Future[None]:
        """Done when its last attempt, after which another one is to follow, is on the disk."""
        ended = job.past[-1]
        core = ended.core
        row = (
            *(job.id, len(job.past), 0, core.device, ended.started_us, ended.ended_us, ended.exit_code, ended.signal),
            *(core.out_of_memory, core.outgrown, core.text, ended.persistent_bytes, ended.ephemeral_bytes),
            *(msgspec.json.encode(job.estimate).decode() if job.estimate else None, log_name(len(job.past))),
        )
        return self._journal.durable(_ATTEMPT, row)

    def _last(self, job: JobRecord) -> None:
        """How the attempt ended with which the job did."""
        usage, text = job.usage, job.reason.text if job.reason else ""
        row = (
            *(job.id, job.attempt, 1, job.device, job.started_us, job.ended_us, job.exit_code, job.signal, 0, 0),
            *(text, usage.persistent_peak, usage.ephemeral_peak, None, log_name(job.attempt)),
        )
        self._journal.owe(_ATTEMPT, [row])

    def ended(self, job: JobRecord) -> None:
        """Record the end; a successful run that used its device counts in the estimate of the next one."""
        assert job.outcome is not None
        usage, reason = job.usage, job.reason
        row = (
            *(job.device, job.outcome.value, job.exit_code, job.signal),
            *((reason.code, reason.text) if reason else (None, None)),
            *(usage.persistent_peak, usage.ephemeral_peak, usage.iterations, usage.device_us),
            *(job.switches, usage.residue, job.started_us, job.ended_us),
            *(usage.out_bytes, usage.out_us, usage.in_bytes, usage.in_us, job.id),
        )
        self._journal.owe(_ENDED, [row], erases=True)
        self._journal.owe("DELETE FROM meta WHERE key = ?", [(f"{_USE}{job.id}",)])
        if job.started_us is not None:
            self._last(job)
        if (
            job.outcome is Outcome.SUCCEEDED
            and not job.by_checkpoint
            and (usage.persistent_peak or usage.ephemeral_peak)
        ):
            self._remember(job)
        if job.outcome is Outcome.SUCCEEDED and not job.by_checkpoint:
            self._remember_ungated(job)

    def estimate(self, owner: int, spec: SubmitRequest) -> Estimate | None:
        """A hint or an estimator's figures for memory; for the rest, and without them for all, earlier runs."""
        earlier = expected(self._history.get(command_key(owner, spec.cwd, spec.argv), ()))
        if spec.persistent_bytes is None and spec.ephemeral_bytes is None:
            return earlier
        memory = Memory(spec.persistent_bytes or 0, spec.ephemeral_bytes or 0)
        if earlier is None:
            return Estimate(memory, spec.estimate_source)
        return Estimate(memory, spec.estimate_source, earlier.iteration_us, earlier.iterations)

    def runs(self, owner: int, cwd: str, argv: list[str]) -> list[RunInfo]:
        """Those of a command that are known, the newest last."""
        known = self._history.get(command_key(owner, cwd, argv), ())
        return [RunInfo(run.persistent, run.ephemeral) for run in known]

    def ran_ungated(self, owner: int, spec: SubmitRequest) -> str:
        """Why the last successful run of the command speaks for the checkpoint engine; empty: it does not."""
        job = self._ungated.get(command_key(owner, spec.cwd, spec.argv))
        return "" if job is None else f"job {job}, an earlier run of the command, used its device outside of Carpool"

    def _remember_ungated(self, job: JobRecord) -> None:
        """Whether the driver could have suspended it, and nothing else could have held it back."""
        key = command_key(job.owner, job.spec.cwd, job.spec.argv)
        if job.ran_ungated and not job.was_seated:
            self._ungated[key] = job.id
            self._journal.owe(_UNGATED, [(key, job.id, wall_us())])
        elif job.was_seated and self._ungated.pop(key, None) is not None:
            self._journal.owe(_NOT_UNGATED, [(key,)])

    def _remember(self, job: JobRecord) -> None:
        usage, key = job.usage, command_key(job.owner, job.spec.cwd, job.spec.argv)
        each = iteration_us(job) if usage.iterations else None
        run = RunRecord(wall_us(), usage.persistent_peak, usage.ephemeral_peak, usage.iterations, each)
        runs = self._history.setdefault(key, deque(maxlen=KEPT_RUNS))
        runs.append(run)
        self._journal.owe(_RAN, [(key, *dataclasses.astuple(run))])
        if len(runs) == KEPT_RUNS:
            self._journal.owe(_FORGET, [(key, runs[0].ended_us)])


def _row(job: JobRecord) -> tuple[object, ...]:
    env = msgspec.json.encode(job.spec.env).decode()
    spec = msgspec.json.encode(msgspec.structs.replace(job.spec, env={})).decode()
    estimate = msgspec.json.encode(job.estimate).decode() if job.estimate else None
    choice = (job.choice.automatic, job.choice.why)
    return (job.id, job.owner, job.gid, spec, env, estimate, job.submitted_us, *choice)


def expected(runs: Collection[RunRecord]) -> Estimate | None:
    """What the next run will need: memory that most of them got by with; its length is the last one's."""
    if not runs:
        return None
    persistent = quantile([run.persistent for run in runs], SHARE_PPM)
    ephemeral = quantile([run.ephemeral for run in runs], SHARE_PPM)
    *_, last = runs
    return Estimate(Memory(persistent, ephemeral), "history", last.iteration_us, last.iterations or None)


def read_history(connection: sqlite3.Connection) -> Runs:
    """The last `KEPT_RUNS` runs of each command."""
    history: Runs = {}
    rows = connection.execute(
        "SELECT command_key, ended_us, persistent_bytes, ephemeral_bytes, iterations, iteration_us FROM runs"
        " ORDER BY ended_us, rowid"
    )
    for key, *figures in rows:
        history.setdefault(key, deque(maxlen=KEPT_RUNS)).append(RunRecord(*figures))
    return history


def read_ungated(connection: sqlite3.Connection) -> dict[str, JobId]:
    """Commands whose last successful run used its device beside Carpool, with the job that it was."""
    return dict(connection.execute("SELECT command_key, job FROM beside"))


def read_devices(connection: sqlite3.Connection) -> dict[JobId, tuple[DeviceId, ...]]:
    """All devices of the jobs that have been given several, their own first."""
    decode = msgspec.json.Decoder(tuple[DeviceId, ...]).decode
    rows = connection.execute("SELECT job, devices FROM placements WHERE devices LIKE '%,%'")
    return {job: decode(devices) for job, devices in rows}


def read_placement(path: Path, job: JobId) -> bytes | None:
    """What a job was last placed on, as JSON of `carpool.core.decision.Placement`; None: nobody has written it down.

    From the file: it may be long ago.
    """
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        row = connection.execute("SELECT decision FROM placements WHERE job = ?", (job,)).fetchone()
    return None if row is None or row[0] == "null" else row[0].encode()


def read_attempts(connection: sqlite3.Connection) -> dict[JobId, list[tuple[Ended, str | None]]]:
    """Of each job the attempts that came to nothing, in order, with the estimate that follows from each."""
    found: dict[JobId, list[tuple[Ended, str | None]]] = {}
    rows = connection.execute(f"SELECT {_ATTEMPTS} FROM attempts WHERE last = 0 ORDER BY job, attempt")
    for job, device, started, ended, code, signal, short, outgrown, text, p, e, estimate in rows:
        core = Attempt(text, device, bool(short), outgrown)
        found.setdefault(job, []).append((Ended(core, started, ended, code, signal, p, e), estimate))
    return found


def read_jobs(connection: sqlite3.Connection) -> Iterator[JobRecord]:
    """All jobs of the journal in order of their ids."""
    attempts, uses = read_attempts(connection), read_uses(connection)
    for job in _read_rows(connection):
        earlier = attempts.get(job.id)
        if earlier:
            _had(job, earlier)
        attempt, was_seated, ran_ungated = uses.get(job.id, (0, False, False))
        if attempt == job.attempt:
            job.was_seated, job.ran_ungated = was_seated, ran_ungated
        yield job


def read_uses(connection: sqlite3.Connection) -> dict[JobId, tuple[int, bool, bool]]:
    """Of jobs that have not ended: the attempt, whether a process of it had its seat, and whether one ran beside."""
    decode = msgspec.json.Decoder(tuple[int, bool, bool]).decode
    rows = connection.execute("SELECT key, value FROM meta WHERE key LIKE ?", (f"{_USE}%",))
    return {int(key.removeprefix(_USE)): decode(text) for key, text in rows}


def _had(job: JobRecord, earlier: list[tuple[Ended, str | None]]) -> None:
    """What the row of the job says of an earlier attempt is not so any more."""
    job.past, estimate = tuple(ended for ended, _ in earlier), earlier[-1][1]
    job.estimate = msgspec.json.decode(estimate, type=Estimate) if estimate else None
    if job.phase is not JobPhase.ENDED and (job.started_us or 0) <= job.past[-1].ended_us:
        job.started_us = job.device = None
        job.further = ()


def _read_rows(connection: sqlite3.Connection) -> Iterator[JobRecord]:
    decode_spec = msgspec.json.Decoder(SubmitRequest).decode
    decode_estimate = msgspec.json.Decoder(Estimate).decode
    placed = read_devices(connection)
    for row in connection.execute(f"SELECT {_COLUMNS} FROM jobs ORDER BY id"):
        (number, owner, gid, spec, env, estimate, submitted, cancelled, phase, device, outcome, code, signal) = row[:13]
        (reason_code, reason_text, p, e, iterations, device_us, switches, residue, started, ended) = row[13:23]
        out_bytes, out_us, in_bytes, in_us, automatic, why = row[23:]
        request = decode_spec(spec)
        if phase != JobPhase.ENDED:
            request = msgspec.structs.replace(request, env=msgspec.json.decode(env))
        yield JobRecord(
            *(number, owner, gid, request, decode_estimate(estimate) if estimate else None, submitted),
            choice=EngineChoice(bool(automatic), why),
            phase=JobPhase(phase),
            cancelled=bool(cancelled),
            device=device,
            further=placed.get(number, ())[1:],
            usage=Usage(
                persistent_peak=p,
                ephemeral_peak=e,
                iterations=iterations,
                device_us=device_us,
                residue=residue,
                out_bytes=out_bytes,
                out_us=out_us,
                in_bytes=in_bytes,
                in_us=in_us,
            ),
            switches=switches,
            started_us=started,
            ended_us=ended,
            outcome=Outcome(outcome) if outcome else None,
            exit_code=code,
            signal=signal,
            reason=Reason(reason_code, reason_text) if reason_code else None,
        )
