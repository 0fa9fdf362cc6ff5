"""Engines beside a trace: servers of language models, when requests for them arrive, and the results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from carpool.core.model import JobId, Micros


class EngineRequest(NamedTuple):
    """``prompt_us``: computing time up to the first token.  ``tokens`` of the answer; 0: their number is not known."""

    at_us: Micros
    prompt_us: Micros
    tokens: int


@dataclass(frozen=True, slots=True)
class ServedEngine:
    """Sizes are bytes, times microseconds since the beginning of the trace.  All memory is persistent."""

    name: str  # several with one name have their figures together
    requests: tuple[EngineRequest, ...]  # in the order of their arrivals
    weights: int = 0  # copied to the device when the process starts
    cache: int = 0
    token_us: Micros = 0  # each further token of one answer
    further_us: Micros = 0  # what each further answer adds to the time of a token
    most: int = 64  # requests at a time; those beyond are refused
    start_us: Micros = 0  # from the start of its process, until it touches its device
    begin_us: Micros | None = None  # its process starts; None: with its first request
    end_us: Micros = 0  # its process ends no earlier
    ttl_us: Micros | None = None  # its process ends after so long without requests; None: after the last one
    priority: int = 100  # larger is more; matters where the setting `serving` says so
    owner: JobId = 0

    @property
    def memory(self) -> int:
        """All bytes that it needs."""
        return self.weights + self.cache


@dataclass(slots=True)
class EngineResult:
    """The requests of one engine, each answered, refused or failed."""

    engine: ServedEngine
    latencies_us: list[Micros] = field(default_factory=list)  # of those answered: from arrival to the last token
    first_us: list[Micros] = field(default_factory=list)  # from arrival to the first token, where tokens are known
    token_us: list[Micros] = field(default_factory=list)  # mean time of the further tokens, of answers that have some
    tokens: int = 0
    refused: int = 0  # too many were there
    failed: int = 0  # its process could not start, or has ended
    starts: int = 0  # of its process
    offloads: int = 0  # times that its memory left the device
    moved_bytes: int = 0  # out and back
    ended_us: Micros = 0  # the last request was settled

    @property
    def settled(self) -> int:
        """The number of requests whose outcome is known."""
        return len(self.latencies_us) + self.refused + self.failed
