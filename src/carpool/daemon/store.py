"""The journal in the daemon's terms: which statement records what, and what is read back at the start."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Iterator

import msgspec

from carpool.core.model import Estimate, JobPhase, Memory, Outcome, Reason, Usage
from carpool.daemon.clock import wall_us
from carpool.daemon.jobs import Job, iteration_us
from carpool.daemon.journal import Journal
from carpool.protocol.api import SubmitRequest

_INSERT = """INSERT INTO jobs (id, owner, gid, spec, env, estimate, submitted_us, phase)
  VALUES (?, ?, ?, ?, ?, ?, ?, 'queued')"""
_STARTED = "UPDATE jobs SET phase = 'running', device = ?, started_us = ? WHERE id = ?"
_ENDED = """UPDATE jobs SET phase = 'ended', device = ?, outcome = ?, exit_code = ?, signal = ?, reason_code = ?,
  reason_text = ?, persistent_bytes = ?, ephemeral_bytes = ?, iterations = ?, device_us = ?, switches = ?,
  residue_bytes = ?, started_us = ?, ended_us = ?, out_bytes = ?, out_us = ?, in_bytes = ?, in_us = ? WHERE id = ?"""
_HISTORY = "INSERT OR REPLACE INTO history VALUES (?, ?, ?, ?, ?, ?)"
_COLUMNS = """id, owner, gid, spec, env, estimate, submitted_us, cancelled, phase, device, outcome, exit_code, signal,
  reason_code, reason_text, persistent_bytes, ephemeral_bytes, iterations, device_us, switches, residue_bytes,
  started_us, ended_us, out_bytes, out_us, in_bytes, in_us"""


class Store:
    """Writes through the journal's thread; `history` mirrors its table, which is small (one row per command)."""

    def __init__(self, journal: Journal, history: dict[str, Estimate]) -> None:
        self._journal = journal
        self._history = history

    def submitted(self, job: Job) -> asyncio.Future[None]:
        """Done when the job is on the disk."""
        env = msgspec.json.encode(job.spec.env).decode()
        spec = msgspec.json.encode(msgspec.structs.replace(job.spec, env={})).decode()
        estimate = msgspec.json.encode(job.estimate).decode() if job.estimate else None
        row = (job.id, job.owner, job.gid, spec, env, estimate, job.submitted_us)
        return self._journal.durable(_INSERT, row)

    def cancelled(self, job: Job) -> asyncio.Future[None]:
        return self._journal.durable("UPDATE jobs SET cancelled = 1 WHERE id = ?", (job.id,))

    def started(self, job: Job) -> None:
        self._journal.owe(_STARTED, [(job.device, job.started_us, job.id)])

    def ended(self, job: Job) -> None:
        """Record the end; a successful run that used its device becomes the estimate of the next one."""
        assert job.outcome is not None
        usage, reason = job.usage, job.reason
        row = (
            *(job.device, job.outcome.value, job.exit_code, job.signal),
            *((reason.code, reason.text) if reason else (None, None)),
            *(usage.persistent_peak, usage.ephemeral_peak, usage.iterations, usage.device_us),
            *(job.switches, usage.residue, job.started_us, job.ended_us),
            *(usage.out_bytes, usage.out_us, usage.in_bytes, usage.in_us, job.id),
        )
        self._journal.owe(_ENDED, [row])
        if job.outcome is Outcome.SUCCEEDED and not job.guest and (usage.persistent_peak or usage.ephemeral_peak):
            self._remember(job)

    def estimate(self, owner: int, spec: SubmitRequest) -> Estimate | None:
        """A hint of the user's for memory; for the rest, and without a hint for all, the last successful run."""
        earlier = self._history.get(command_key(owner, spec))
        if spec.persistent_bytes is None and spec.ephemeral_bytes is None:
            return earlier
        memory = Memory(spec.persistent_bytes or 0, spec.ephemeral_bytes or 0)
        if earlier is None:
            return Estimate(memory, "hint")
        return Estimate(memory, "hint", earlier.iteration_us, earlier.iterations)

    def _remember(self, job: Job) -> None:
        usage, key = job.usage, command_key(job.owner, job.spec)
        memory = Memory(usage.persistent_peak, usage.ephemeral_peak)
        each = iteration_us(job) if usage.iterations else None
        self._history[key] = Estimate(memory, "history", each, usage.iterations or None)
        row = (key, memory.persistent, memory.ephemeral, usage.iterations, each, wall_us())
        self._journal.owe(_HISTORY, [row])


def command_key(owner: int, spec: SubmitRequest) -> str:
    """Runs of the same command line, in the same directory, by the same user, count as the same job."""
    return hashlib.sha256(msgspec.json.encode([owner, spec.cwd, spec.argv])).hexdigest()


def read_history(connection: sqlite3.Connection) -> dict[str, Estimate]:
    rows = connection.execute(
        "SELECT command_key, persistent_bytes, ephemeral_bytes, iterations, iteration_us FROM history"
    )
    return {key: Estimate(Memory(p, e), "history", each, total or None) for key, p, e, total, each in rows}


def read_jobs(connection: sqlite3.Connection) -> Iterator[Job]:
    """All jobs of the journal in order of their ids."""
    decode_spec = msgspec.json.Decoder(SubmitRequest).decode
    decode_estimate = msgspec.json.Decoder(Estimate).decode
    for row in connection.execute(f"SELECT {_COLUMNS} FROM jobs ORDER BY id"):
        (number, owner, gid, spec, env, estimate, submitted, cancelled, phase, device, outcome, code, signal) = row[:13]
        (reason_code, reason_text, p, e, iterations, device_us, switches, residue, started, ended) = row[13:23]
        out_bytes, out_us, in_bytes, in_us = row[23:]
        request = decode_spec(spec)
        if phase != JobPhase.ENDED:
            request = msgspec.structs.replace(request, env=msgspec.json.decode(env))
        yield Job(
            *(number, owner, gid, request, decode_estimate(estimate) if estimate else None, submitted),
            phase=JobPhase(phase),
            cancelled=bool(cancelled),
            device=device,
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
