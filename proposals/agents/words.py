"""Figures and small phrases of an answer.  A figure of the model always says that it is predicted, with its range."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isclose
from typing import Any

import formatting
from formatting import counted, number, plain, topology
from proposals import facts
from proposals.agents.diagnosed import EvidenceRow, Verdict
from proposals.agents.priced import Current, Neighbour, Priced, RejectedMesh
from proposals.candidate import HARDWARE_KEYS, changes_chips
from proposals.plan import Communication

#: How the sentences begin of rules that can not be checked (`proposer.limits`).
OPEN = re.compile(r"The (?:model|global batch|sequence length) is unknown")
#: Parts of a step's breakdown, by key; a collective's axis stands after `ici:`.
PARTS = {
    "compute": "compute", "hbm": "HBM-bound", "dcn": "exposed DCN communication", "host": "host", "input": "input",
    "idle": "idle", "other": "other", "host_transfer": "host transfers", "kernel_launches": "kernel launches",
    "bubble": "pipeline bubble",
}  # fmt: skip
#: Speed-ups nearer than this are the same for anyone who would measure them.
SAME = 0.01


def part_name(key: str) -> str:
    """A part of the breakdown of a step: `exposed communication on model`."""
    name = key.removeprefix("ici:")
    return PARTS.get(key) or (f"exposed communication on {name}" if name != key else key.replace("_", " "))


def bottleneck(verdict: Verdict) -> str:
    """What limits the step, as a noun: `communication`, `the host`."""
    names = {"memory": "HBM bandwidth", "input": "the input pipeline", "host": "the host", "idle": "idle time"}
    return names.get(verdict.primary, verdict.primary)


def evidence_text(row: EvidenceRow) -> str:
    """The value of a row of evidence as pages show it; empty where it was not measured."""
    return "" if row.value is None else plain(float(row.value), row.unit, row.origin)


def mesh(row: Current | Priced | RejectedMesh) -> str:
    """The mesh in backticks, without axes of size 1 where that leaves any."""
    return f"`{row.mesh_text}`" if row.mesh_text else "the mesh"


def ratio(value: float) -> str:
    return plain(value, "speedup")


def gain(row: Priced) -> str:
    """Its speed-up per token alone; a dash where none is predicted."""
    return ratio(row.speedup_per_token) if row.speedup_per_token else "–"


def speed(row: Priced) -> str:
    """`1.08× per token (80 % interval 0.85–1.37×)`."""
    return "no predicted speed-up" if row.speedup_per_token is None else f"{gain(row)} per token{within(row)}"


def within(row: Priced) -> str:
    """` (80 % interval 0.85–1.37×)`; empty where nothing is predicted to change."""
    return "" if (range_text := span(row)) == "–" else f" (80 % interval {range_text})"


def span(row: Priced) -> str:
    """The range of a speed-up; a dash for a single value, as of the current configuration."""
    low, high = row.speedup_low80, row.speedup_high80
    if not low or not high:
        return "not known"
    return formatting.span(low, high, "speedup") if ratio(low) != ratio(high) else "–"


def fewer_chips(row: Priced) -> bool:
    """Whether a configuration is for another part of the machine; there its confidence is that each chip gains."""
    return changes_chips(row.changes)


def keeps(row: Priced) -> bool:
    """Whether it is the current configuration: nothing is predicted, and its confidence is that keeping it is right."""
    return not row.changes and isclose(row.speedup_per_token or 0.0, 1.0) and span(row) == "–"


def gains(row: Priced) -> str:
    """What a confidence is of, after `that it`: on fewer chips a step may take longer and still gain for each chip."""
    return "is faster per token and chip" if fewer_chips(row) else "is faster per token"


def sure(row: Priced) -> str:
    """`64 %`; on fewer chips `64 % per token and chip`; of the current configuration that keeping it is right."""
    if keeps(row):
        return f"{confidence(row)} that keeping it is right"
    return confidence(row) + (" per token and chip" if fewer_chips(row) else "")


def confidence(row: Priced) -> str:
    """Its confidence alone; a dash where there is none, as on other chips."""
    return "–" if row.confidence_share is None else percent(row.confidence_share)


def step(row: Priced) -> str:
    """The predicted step time with its range."""
    time = row.step_time_s
    if time is None:
        return "not measured"
    estimate, low, high = (plain(value, "s", "predicted") for value in (time.estimate, time.low80, time.high80))
    return f"{estimate} (80 % interval {low} to {high})" if low != high else estimate


def estimate(row: Priced) -> str:
    """The predicted step time alone."""
    return plain(row.step_time_s.estimate, "s", "predicted") if row.step_time_s else "–"


def current_step(ran: Current, origin: str) -> str:
    """The step time of the current configuration."""
    return plain(ran.step_time_s, "s", origin) if ran.step_time_s else "–"


def percent(value: float) -> str:
    """A confidence: whole per cents, as it is known no better."""
    return plain(value, "probability")


def share(value: float, origin: str = "") -> str:
    return plain(value, "share", origin)


def time(value: float, origin: str = "") -> str:
    return plain(value, "s", origin)


def traffic(row: Communication) -> tuple[str, str]:
    """Communication now and predicted: its time, or its share where no step time was measured."""
    before, after = ((row.before_s, row.before_share), (row.after_s, row.after_share))
    return _exposed(*before), _exposed(*after)


def _exposed(seconds: float | None, part: float | None) -> str:
    if not ((part or 0.0) if seconds is None else seconds) > 0:
        return "none"
    return f"{share(part or 0.0)} of device time" if seconds is None else time(seconds)


def size(value: float) -> str:
    return plain(value, "bytes")


def memory(row: Current | Priced) -> str:
    """`12.3 GB of 15.9 GB`, or that nobody knows."""
    held = row.hbm_per_chip_bytes
    return f"{size(held.total)} of {size(held.capacity)}" if held else "not known"


def headroom(row: Current | Priced) -> str:
    """What is left of the memory; a dash where nobody knows."""
    return "–" if row.memory_headroom_bytes is None else size(row.memory_headroom_bytes)


def changes(changed: Mapping[str, Any]) -> str:
    """Changed keys in a few words; empty where there are none."""
    parts = [setting(key, value) for key, value in changed.items() if key not in HARDWARE_KEYS]
    return ", ".join([*parts, *_chips(changed)])


def _chips(changed: Mapping[str, Any]) -> list[str]:
    """`8×16 chips` of each of the slices that are used."""
    slices, dims = changed.get("slices"), changed.get("topology")
    of = f"{topology(dims)} chips" if dims else ""
    if slices and (slices > 1 or not of):
        count = counted(slices, "slice")
        of = f"{count} of {of}" if of else count
    return [of] if of else []


def setting(key: str, value: Any) -> str:
    if key == "xla_flags":
        return "more XLA flags"
    name = "batch" if key == "global_batch" else facts.setting(key)
    return f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"


def configuration(row: Priced) -> str:
    """Mesh and changes as one name."""
    changed = changes(row.changes)
    return f"{mesh(row)} with {changed}" if changed else mesh(row)


def located(row: Priced) -> str:
    """The configuration, with the chips where they are not those that ran."""
    return configuration(row) + (f" on {row.elsewhere}" if row.elsewhere else "")


def lower_first(text: str) -> str:
    """The text as it goes on in a sentence; names and abbreviations keep their capitals."""
    word = text.split(" ", 1)[0]
    return text[:1].lower() + text[1:] if word[1:].islower() or word == "A" else text


def title(row: Priced) -> str:
    return f"**Proposal {row.number}** ({lower_first(row.title)}, {mesh(row)})"


def violations(row: Priced) -> list[str]:
    return [item.reason for item in row.violations]


def step_text(row: Neighbour) -> str:
    """A neighbouring configuration in words: `model 4 → 2, data 8 → 16`, `a global batch of 512`."""
    batch = row.changes.get("global_batch") if row.varies == "batch" else None
    return row.step if batch is None else f"a global batch of {batch:,}"


def rule(name: str) -> str:
    """The name of a rule of `perfmodel.legality` in words."""
    return {"kv_heads": "KV heads", "d_ff": "FFN width", "axis_role": "role of an axis"}.get(
        name, name.replace("_", " ")
    )


def open_questions(row: Priced) -> list[str]:
    """Why a configuration is only not known to be illegal."""
    return [text for text in row.lowers_confidence if OPEN.match(text)]


def allowed(row: Priced) -> str:
    if row.violations:
        return f"no: {rule(row.violations[0].rule)}"
    return "not certain" if open_questions(row) else "yes"


def rate(value: float) -> str:
    """Bytes per second: `45 GB/s`."""
    return plain(value, "bytes_per_s")


def flops(value: float) -> str:
    """FLOPs per second: `459 TFLOP/s`."""
    return plain(value, "flops_per_s")


def inconclusive(row: Priced) -> str:
    """Says so where the 80 % interval includes no gain and no loss."""
    low, high = row.speedup_low80, row.speedup_high80
    return " The interval includes 1: *inconclusive* until measured." if low and high and low < 1 < high else ""


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def chip_hours(value: float) -> str:
    return f"{number(value)} chip-hours"


def days(value: float) -> str:
    return time(value * 86400)
