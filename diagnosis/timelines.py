"""The timeline of a profile: its events (`experiments.trace`) with the axes that the diagnosis gave its collectives."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diagnosis.models import DiagnosisRecord, OpRow
from experiments import bars
from experiments.lru_cache import LruCache
from experiments.models import Experiment, Profile
from experiments.services import traces
from experiments.trace import ASYNC, HOST, KINDS, OPS, Trace, sums, tiles

PS = 1e12
#: Words and colour class of each kind; a collective whose axis is known has the class of the axis.
KIND_WORDS = bars.STEP_PARTS | {
    "copy": ("Copies", "hbm"),
    "host_transfer": ("Host transfer", "host"),
}
#: Cores with at most this many rows show asynchronous ops from the start.
MOST_ROWS_WITH_ASYNC = 32
MOST_STEPS_LISTED = 2000
MOST_AXES = 24
#: Tiles kept in a process, at most 0.8 MB each.
KEPT_TILES = 80


@dataclass(frozen=True)
class Class:
    """What a colour stands for."""

    key: str
    label: str
    css: str


@dataclass(frozen=True)
class Timeline:
    """One profile's events, ready to be drawn.

    classes: what events are coloured by; class_of: [names] its number for each name; ranks: of ops in the diagnosis by
    their key; version: changes with events or axes.
    """

    profile: Profile
    trace: Trace
    record: DiagnosisRecord | None
    classes: tuple[Class, ...]
    class_of: NDArray[np.uint8]
    version: str

    @cached_property
    def ranks(self) -> dict[str, int]:
        if self.record is None:
            return {}
        return dict(OpRow.objects.filter(diagnosis=self.record).values_list("key", "rank"))

    def rank(self, name: int) -> int | None:
        """Rank of the op behind a name, for the link to its page."""
        return self.ranks.get(self.trace.names[name].op)

    def css(self, name: int) -> str:
        return self.classes[int(self.class_of[name])].css

    def class_label(self, name: int) -> str:
        return self.classes[int(self.class_of[name])].label

    def rows(self) -> list[dict[str, Any]]:
        """The tracks in the order in which they are drawn: per core its ops, then asynchronous ones; hosts last."""
        trace, tracks = self.trace, []
        places = host_places([core.host for core in trace.cores])
        streams = [sum(t.core == at and t.lane == OPS for t in trace.tracks) for at in range(len(trace.cores))]
        for number, track in enumerate(trace.tracks):
            core = trace.cores[track.core]
            place = f"{places[core.host]} " if places.get(core.host) else ""
            what = {
                OPS: f" {track.name}" if streams[track.core] > 1 or track.name else "",
                ASYNC: " async",
                HOST: f" {track.name}",
            }
            tracks.append({"track": number, "lane": track.lane, "core": track.core,
                          "label": f"{place}{core.name}{what[track.lane]}"})  # fmt: skip
        return sorted(tracks, key=lambda row: (row["lane"] == HOST, row["core"], row["track"]))

    def usual_step(self) -> int | None:
        """The step whose length is nearest to the median: neither the compilation nor one that was cut off."""
        spans = self.step_spans()
        if not spans:
            return None
        median = statistics.median(end - start for _, start, end in spans)
        first = spans[0][0]
        return min(spans, key=lambda span: (abs(span[2] - span[1] - median), span[0] == first))[0]

    def step_spans(self) -> list[tuple[int, int, int]]:
        """(number, start, end) of each step in ps: of the core that began it first to that which ended it last."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for core in range(len(self.trace.cores)):
            for number, start, end in zip(*(c.tolist() for c in self.trace.steps(core)), strict=True):
                first[number] = min(first.get(number, start), start)
                last[number] = max(last.get(number, end), end)
        return [(number, first[number], last[number]) for number in self.trace.step_numbers]

    def lanes(self) -> list[str]:
        """Lanes that the profile has."""
        return [lane for lane in (OPS, ASYNC, HOST) if any(track.lane == lane for track in self.trace.tracks)]

    def found_names(self, op: str = "", words: str = "") -> list[int]:
        """Indices of the names of an op by its key, or of those that hold the words."""
        if op:
            return self.trace.names_of_op(op)
        return self.trace.names_like(words) if words else []

    def mask(self, names: Sequence[int]) -> NDArray[np.bool_]:
        only = np.zeros(len(self.trace.names), bool)
        only[list(names)] = True
        return only

    def sums(self, t0: int, t1: int, most: int = 20) -> sums.Sums:
        return sums.sums(self.trace, t0, t1, self.class_of, len(self.classes), most=most)


_timelines = LruCache(8)
_tiles = LruCache(KEPT_TILES)


def host_places(hosts: Sequence[str]) -> dict[str, str]:
    """Return a short name of each host, from the last word that all share: `host-0` for `run-7-host-0`; empty for one
    host."""
    names = {host: host.split("-") for host in hosts}
    if len(names) < 2:
        return {}
    shared = sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, zip(*names.values(), strict=False)))
    return {host: "-".join(words[max(0, shared - 1) :]) for host, words in names.items()}


def of(profile: Profile, record: DiagnosisRecord | None, roles: Mapping[str, str] | None = None) -> Timeline:
    """The timeline of a profile, with the axes of its diagnosis where there is one.  Raises `traces.NoTrace`."""
    trace = traces.load(profile)
    facts = trace.path.stat()
    key = (str(trace.path), facts.st_mtime_ns, record.pk if record else 0, tuple(sorted((roles or {}).items())))

    def make() -> Timeline:
        version = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        return Timeline(profile, trace, record, *_classes(trace, _axes(record), roles), version)

    return _timelines.get(key, make)


def of_profile(profile: Profile, experiment: Experiment) -> Timeline:
    """The timeline of a profile of this experiment as its newest diagnosis sees it.  Raises `traces.NoTrace`."""
    record = DiagnosisRecord.objects.filter(run__profile=profile).defer("data").order_by("-run_id").first()
    return of(profile, record, experiment.axis_roles)


def _axes(record: DiagnosisRecord | None) -> dict[str, str]:
    """Axis of each collective by the key of its op."""
    if record is None:
        return {}
    rows = OpRow.objects.filter(diagnosis=record).exclude(mesh_axis="")
    return dict(rows.values_list("key", "mesh_axis"))


def _classes(
    trace: Trace, axes: Mapping[str, str], roles: Mapping[str, str] | None
) -> tuple[tuple[Class, ...], NDArray[np.uint8]]:
    """The classes that occur, and the number of the class of each name."""
    by_key: dict[tuple[str, str], Class] = {}
    order: dict[str, int] = {}
    keys: list[tuple[str, str]] = []
    for name in trace.names:
        axis = axes.get(name.op, "") if name.kind == "collective" else ""
        if axis and axis not in order and len(order) >= MOST_AXES:
            axis = ""
        if axis:
            order.setdefault(axis, len(order))
        key = (name.kind, axis)
        keys.append(key)
        if key not in by_key:
            words, css = KIND_WORDS[name.kind]
            on = "DCN" if axis == "dcn" else axis.replace(", ", " + ")
            label = f"Collectives on {on}" if axis else words
            by_key[key] = Class(
                ":".join(part for part in key if part), label, bars.axis_class(axis, roles) if axis else css
            )
    ranked = sorted(by_key, key=lambda key: (KINDS.index(key[0]), key[1] == "", key[1]))
    if ("collective", "") in by_key and order:
        by_key["collective", ""] = Class("collective", "Collectives, unknown axis", "ici")
    place = {key: at for at, key in enumerate(ranked)}
    return tuple(by_key[key] for key in ranked), np.array([place[key] for key in keys], np.uint8)


def tile(timeline: Timeline, lane: str, block: int, level: int, index: int, op: str = "", words: str = "") -> bytes:
    """A packed tile (`experiments.trace.tiles`) of the block-th `TRACKS_PER_BLOCK` tracks of a lane.

    op, words: only events of this op, or whose names hold these words.  ValueError where there is no such tile.
    """
    tracks = timeline.trace.tracks_of([lane])[block * tiles.TRACKS_PER_BLOCK : (block + 1) * tiles.TRACKS_PER_BLOCK]
    if block < 0 or not tracks:
        raise ValueError(f"There is no block {block} of {lane or 'no lane'}.")
    key = (timeline.version, lane, block, level, index, op, words)
    only = timeline.mask(timeline.found_names(op, words)) if op or words else None
    made: bytes = _tiles.get(key, lambda: tiles.tile(timeline.trace, tracks, level, index, timeline.class_of, only))
    return made


def seconds_to_ps(text: str | None, default: int) -> int:
    """A time of an address, in seconds, as ps; the default where it is none."""
    try:
        value = float(text or "")
    except ValueError:
        return default
    return round(value * PS) if abs(value) < 1e6 else default


def view_of(timeline: Timeline, query: Mapping[str, str]) -> dict[str, Any]:
    """What an address asks to see: step, and [t0, t1) in ps: as given, else that of the op's spans, else the step."""
    spans = timeline.step_spans()
    numbers = {number: (start, end) for number, start, end in spans}
    step = {str(number): number for number in numbers}.get(query.get("step", ""), timeline.usual_step())
    home = numbers[step] if step is not None else timeline.trace.span
    t0, t1 = seconds_to_ps(query.get("t0"), home[0]), seconds_to_ps(query.get("t1"), home[1])
    if t1 <= t0:
        t0, t1 = home
    return {"step": step, "home": home, "t0": t0, "t1": t1, "is_selected": "t0" in query and "t1" in query}
