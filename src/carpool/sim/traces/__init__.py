"""Traces: files that list which job arrives when.  docs/traces.md describes the formats."""

from carpool.sim.traces.files import TraceError
from carpool.sim.traces.formats import FORMATS, read_trace, read_trace_with_notes
from carpool.sim.traces.journal import read_journal
from carpool.sim.traces.table import write_trace

__all__ = ["FORMATS", "TraceError", "read_journal", "read_trace", "read_trace_with_notes", "write_trace"]
