"""What results were made with: enough to make them again, and to see that two of them are of the same jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from carpool.sim.model.trace_job import TraceJob

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that was read.  ``sha256``: of its bytes; of a journal, which a daemon may be writing, of its jobs."""

    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class MadeWith:
    """None: not used."""

    carpool: str  # its version
    command: str  # as a shell would take it
    trace: InputFile | None = None
    journal: InputFile | None = None
    generator: str | None = None
    services: InputFile | None = None
    seeds: str | None = None  # as in 3 or 0:20
    loads: Sequence[float] | None = None
    replicas: int | None = None

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield names and values for readers."""
        yield "Carpool", self.carpool
        yield "command", self.command
        for name in ("trace", "journal", "services"):
            source: InputFile | None = getattr(self, name)
            if source is not None:
                yield name, f"{source.file}, SHA-256 {source.sha256}"
        for name in ("generator", "seeds", "replicas"):
            if getattr(self, name) is not None:
                yield name, str(getattr(self, name))
        if self.loads is not None:
            yield "loads", ", ".join(f"{load:g}" for load in self.loads)


def source_file(path: Path) -> InputFile:
    """Return the name and the digest of a file.  Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return InputFile(path.name, digest.hexdigest())


def source_journal(path: Path, jobs: Sequence[TraceJob]) -> InputFile:
    """Return the name of a journal, and the digest of the jobs that were read from it."""
    digest = hashlib.sha256()
    for job in jobs:
        digest.update(f"{job!r}\n".encode())
    return InputFile(str(path), digest.hexdigest())
