"""The first steps of a profile whose op tables XProf could not build within its memory."""

from __future__ import annotations

import numpy as np

from experiments.ingest.marks import Annotations, plane_steps
from experiments.ingest.planes import base_ns, core_planes, line_events, op_lines
from experiments.xplane import XEvent, XLine, XSpace


def steps_that_fit(steps: int, expected_bytes: int, allowed_bytes: int) -> int:
    """How many of `steps` steps keep the converter within allowed_bytes; at least two, all of them where they fit."""
    if steps <= 2 or expected_bytes <= allowed_bytes:
        return steps
    return max(2, int(steps * allowed_bytes / expected_bytes))


def keep_first_steps(space: XSpace, count: int) -> None:
    """Remove from the space, in place, everything that begins after the first `count` steps."""
    latest_ns: float = 0
    annotations = Annotations(space)
    for plane in core_planes(space):
        zero_ns = base_ns(plane.lines)
        steps = plane_steps(plane, zero_ns)
        if not len(steps):
            steps = annotations.steps(base_ns(op_lines(plane)))
            zero_ns = base_ns(op_lines(plane))
        if len(steps) <= count:
            continue
        cut_ps = int(steps.ends[count - 1])
        latest_ns = max(latest_ns, zero_ns + cut_ps / 1000)
        for line in plane.lines:
            _cut(line, zero_ns, cut_ps)
    if not latest_ns:
        return
    cores = {plane.name for plane in core_planes(space)}
    for plane in space.planes:
        if plane.name not in cores:
            for line in plane.lines:
                if line.events:
                    _cut(line, line.timestamp_ns, int((latest_ns - line.timestamp_ns) * 1000))


def _cut(line: XLine, zero_ns: int, cut_ps: int) -> None:
    table = line_events(line, zero_ns)
    if len(table) != len(line.events):
        return
    late = table[:, 1] >= cut_ps
    if not late.any():
        return
    first = int(np.argmax(late))
    if late[first:].all():
        del line.events[first:]
        return
    kept = [event for event, is_late in zip(line.events[first:], late[first:].tolist(), strict=True) if not is_late]
    copies = [XEvent.FromString(event.SerializeToString()) for event in kept]
    del line.events[first:]
    line.events.extend(copies)
