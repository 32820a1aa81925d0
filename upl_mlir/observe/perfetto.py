"""Traces for Perfetto (ui.perfetto.dev): slices on tracks, arrows of tokens between them, counters; `--trace T.pftrace`.

The format is Perfetto's own, written by its Python package.  Format: https://perfetto.dev/docs/reference/synthetic-track-event
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The package's generated module is typed in a stub that the checker cannot follow.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportAttributeAccessIssue=false
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

SEQUENCE = 1
"""The number of the one sequence of packets that a trace has."""


@dataclass(frozen=True)
class Slice:
    """Something that took from `begin` to `end` (shown as nanoseconds; equal: an instant) on a track.

    track: names from the outermost group to the track, as ("core 0", "matching").  sends, takes: numbers of tokens that
    leave from here and that end here; Perfetto draws an arrow for each.  arguments: what is shown when it is clicked on.
    """

    track: tuple[str, ...]
    name: str
    begin: int
    end: int
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    sends: tuple[int, ...] = ()
    takes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Count:
    """The value of a counter from `at` on."""

    track: tuple[str, ...]
    at: int
    value: int


def write(path: str | Path, events: Iterable[Slice | Count]) -> None:
    """Write a trace.  Slices of one track must come in the order of their beginnings and lie in each other or apart."""
    with Path(path).open("wb") as file:
        _Writer(StreamingTraceProtoBuilder(file)).write(events)


class _Writer:
    def __init__(self, builder: StreamingTraceProtoBuilder):
        self.builder = builder
        self.tracks: dict[tuple[tuple[str, ...], bool], int] = {}

    def write(self, events: Iterable[Slice | Count]) -> None:
        for e in events:
            if isinstance(e, Count):
                packet = self._event(e.at, TrackEvent.TYPE_COUNTER, self._track(e.track, counter=True))
                packet.track_event.counter_value = e.value
                self.builder.write_packet(packet)
                continue
            track = self._track(e.track)
            instant = e.begin == e.end
            packet = self._event(e.begin, TrackEvent.TYPE_INSTANT if instant else TrackEvent.TYPE_SLICE_BEGIN, track)
            event = packet.track_event
            event.name = e.name
            event.flow_ids.extend((*e.sends, *e.takes))
            for name, value in e.arguments.items():
                note = event.debug_annotations.add()
                note.name, note.string_value = name, value
            self.builder.write_packet(packet)
            if not instant:
                self.builder.write_packet(self._event(e.end, TrackEvent.TYPE_SLICE_END, track))

    def _event(self, at: int, kind: int, track: int) -> Any:
        packet = TracePacket()
        packet.timestamp = at
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.track_event.type = kind
        packet.track_event.track_uuid = track
        return packet

    def _track(self, names: tuple[str, ...], *, counter: bool = False) -> int:
        """The number of a track; it and the groups that it is in are declared when they are first met."""
        known = self.tracks.get((names, counter))
        if known is not None:
            return known
        *outer, name = names
        parent = self._track(tuple(outer)) if outer else 0
        number = self.tracks[names, counter] = len(self.tracks) + 1
        packet = TracePacket()
        packet.trusted_packet_sequence_id = SEQUENCE
        described = packet.track_descriptor
        described.uuid, described.name = number, name
        if parent:
            described.parent_uuid = parent
        if counter:
            described.counter.SetInParent()
        self.builder.write_packet(packet)
        return number
