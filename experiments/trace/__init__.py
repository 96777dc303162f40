"""The event store of a profile: the events of each core over time, in one file that is read by memory map.

`TraceBuilder` writes it, whatever the profile was recorded with; `Trace` reads it; `tiles`, `sums`, `spans` and
`perfetto` are what the timeline and the exports are made of.  Pure: no Django, no XProf.
"""

from experiments.trace.builder import TraceBuilder
from experiments.trace.layout import ASYNC, HOST, KINDS, LANES, OPS, Core, Name, TraceError, Track
from experiments.trace.trace import Trace

__all__ = [
    "ASYNC",
    "HOST",
    "KINDS",
    "LANES",
    "OPS",
    "Core",
    "Name",
    "Trace",
    "TraceBuilder",
    "TraceError",
    "Track",
]
