"""Traces and services for the simulator."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from carpool.sim.services.toml_file import read_services
from carpool.sim.traces import read_trace
from carpool.sim.traces.files import TraceError
from carpool.sim.traces.table import write_trace


def trace(data: bytes) -> None:
    """Of any format; what has been read can be written, and is read again as it was."""
    with tempfile.TemporaryDirectory() as directory, suppress(TraceError):
        path, again = Path(directory) / "trace", Path(directory) / "again.csv"
        path.write_bytes(data)
        jobs = read_trace(path)
        write_trace(jobs, again)
        assert read_trace(again) == jobs


def services(data: bytes) -> None:
    """Models and their requests."""
    with tempfile.TemporaryDirectory() as directory, suppress(TraceError):
        path = Path(directory) / "services.toml"
        path.write_bytes(data)
        read_services(path)
