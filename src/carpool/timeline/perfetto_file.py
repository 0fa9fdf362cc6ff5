"""Perfetto's format: protocol buffers, which ui.perfetto.dev and its trace processor open."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import IO, Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from carpool.timeline.marks import Argument, Begin, End, Mark, Track, TrackGroup, Value

#: Sequence id of the only writer of the file.
SEQUENCE = 1
#: Numbers of clocks in Perfetto's `BuiltinClock`, with the system's own numbers.
REALTIME = 1
CLOCKS = {REALTIME: time.CLOCK_REALTIME, 3: time.CLOCK_MONOTONIC, 6: time.CLOCK_BOOTTIME}
#: Numbers in `TrackEvent.Type` and `TracePacket.SequenceFlags`.
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
CLEARED, NEEDED = 1, 2
#: Packets encoded together.  Concatenated traces form one trace, so a file is written piece by piece.
AT_ONCE = 500


class PerfettoFile:
    """Writes marks to a file as they come."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._piece, self._packets = Trace(), 0
        self._numbers: dict[Track | TrackGroup, int] = {}

    def write(self, marks: Iterable[Mark]) -> None:
        """Write all marks."""
        self._about_clocks()
        for mark in marks:
            self._mark(mark)
        self._write_piece()

    def _about_clocks(self) -> None:
        """Declare that times are wall-clock times, and record the offsets of the other clocks when writing."""
        packet = self._packet()
        packet.sequence_flags = CLEARED
        packet.trace_packet_defaults.timestamp_clock_id = REALTIME
        packet = self._packet()
        packet.clock_snapshot.primary_trace_clock = REALTIME
        for number, clock in CLOCKS.items():
            packet.clock_snapshot.clocks.add(clock_id=number, timestamp=time.clock_gettime_ns(clock))

    def _mark(self, mark: Mark) -> None:
        number = self._numbers.get(mark.track) or self._describe_track(mark.track)  # the description precedes the mark
        packet = self._packet()
        packet.sequence_flags = NEEDED
        packet.timestamp = mark.time_ns
        event = packet.track_event
        event.track_uuid = number
        if isinstance(mark, Value):
            event.type, event.double_counter_value = COUNTER, mark.value
            return
        if isinstance(mark, Begin):
            event.type, event.name = BEGIN, mark.name
            if mark.flows:
                event.flow_ids.extend(mark.flows)
        elif isinstance(mark, End):
            event.type = END
        else:
            event.type, event.name = INSTANT, mark.name
        if mark.arguments:
            _annotate(event, mark.arguments)

    def _describe_track(self, track: Track) -> int:
        group = self._numbers.get(track.group) or self._describe(track.group, 0, track.group.rank)
        return self._describe(track, group, track.rank)

    def _describe(self, what: Track | TrackGroup, parent: int, rank: int) -> int:
        """Write the description of a track or group and return its number, from 1 on: 0 means no track."""
        number = self._numbers[what] = len(self._numbers) + 1
        packet = self._packet()
        about = packet.track_descriptor
        about.uuid, about.name, about.sibling_order_rank = number, what.name, rank
        about.child_ordering = about.EXPLICIT
        if parent:
            about.parent_uuid = parent
        if isinstance(what, Track) and what.unit:
            about.counter.unit_name = what.unit
        return number

    def _packet(self) -> Any:
        """Return a new packet, to be filled in before the next call."""
        if self._packets == AT_ONCE:
            self._write_piece()
        self._packets += 1
        packet = self._piece.packet.add()
        packet.trusted_packet_sequence_id = SEQUENCE
        return packet

    def _write_piece(self) -> None:
        self._file.write(self._piece.SerializeToString())
        self._piece, self._packets = Trace(), 0


def _annotate(event: Any, arguments: Mapping[str, Argument]) -> None:
    for name, value in arguments.items():
        note = event.debug_annotations.add()
        note.name = name
        if isinstance(value, str):
            note.string_value = value
        elif isinstance(value, bool):
            note.bool_value = value
        elif isinstance(value, int):
            note.int_value = value
        else:
            note.double_value = value
