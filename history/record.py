"""A record of the optimization database as a value: the configuration before, what was changed, what was measured
after.

Seeds, imports and the team's own measured proposals all take this form; the table in `history.models` stores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.codec import Codec

#: Where a record comes from: others published it, a user imported it, or this installation measured it.
PROVENANCES = ("published", "imported", "measured")
#: How the change ended.  `failed`: the run did not start or did not finish; `failure` says why.  `not_timed`: no time,
#: throughput or MFU of both sides was published, or the two runs do different work; words like "faster" are no time.
OUTCOMES = ("faster", "slower", "no_change", "failed", "not_timed")
#: Why a run failed, as the field names it.
FAILURES = ("out_of_memory", "does_not_compile", "illegal_mesh", "numerics", "hang", "other")
#: What a change may touch.
CHANGES = (
    "mesh", "batch", "remat", "weight_sharding", "xla_flags", "precision", "kernel", "model", "software", "other",
)  # fmt: skip
#: What the Analyzer can name as the bottleneck; empty where it is not known.
BOTTLENECKS = ("", "compute", "memory", "communication", "input", "host", "idle", "unknown")
#: A change below this share of the step's time per token counts as none: published repeats differ by as much.
NO_CHANGE = 0.01


@dataclass(frozen=True)
class Side:
    """One side of a change.

    mesh: {"ici": {axis: size}, "dcn": {...}} as configured, None where the source does not give it; axis_roles as in
    the configuration, for names that are not canonical.  training: keys of the configuration's `training` as far as
    published (global_batch, seq_len, precision, remat, weight_sharding, grad_accum, xla_flags, ...).
    kpis: what was measured, SI and shares 0-1: step_time_s, tokens_per_s_per_chip, flops_per_s_per_chip, mfu (with
    mfu_convention), duty_cycle, communication, hbm_utilization, peak_bytes, ...; a key that was not measured is absent.
    """

    label: str = ""
    mesh: Mapping[str, Mapping[str, int]] | None = None
    axis_roles: Mapping[str, str] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    kpis: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """One change, measured.

    id: stable within its source (`asap-1`, `optico-figure5-3`).  speedup: time per token before / after, above 1 is
    faster; None where the run failed or only a statement was published.  measure: the quantity that the speed-up was
    computed from (`step time`, `tokens/s per chip`, `MFU`, `TPU compute time`).  bottleneck: the verdict before the
    change, one of the Analyzer's, empty where it is not known.  source: where it was published, with section or table;
    url: its address.  shape: the model as in a configuration's `model`, empty where the catalogue has it by its name or
    the source does not say.
    """

    id: str
    title: str
    change: str
    changes: tuple[str, ...]
    before: Side
    after: Side
    outcome: str
    source: str
    provenance: str = "published"
    chip: str = ""
    chips: int | None = None
    topology: tuple[int, ...] = ()
    slices: int = 1
    model_name: str = ""
    model_family: str = ""
    parameters: float | None = None
    bottleneck: str = ""
    speedup: float | None = None
    measure: str = ""
    effect: str = ""
    failure: str = ""
    caveats: tuple[str, ...] = ()
    url: str = ""
    licence: str = ""
    shape: Mapping[str, Any] = field(default_factory=dict)


#: A record's JSON object, with every key.
RECORD = Codec(Record)


def outcome_of(speedup: float) -> str:
    """`faster`, `slower` or `no_change`, by the speed-up per token."""
    if speedup > 1 + NO_CHANGE:
        return "faster"
    return "slower" if speedup < 1 - NO_CHANGE else "no_change"
