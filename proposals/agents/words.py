"""Figures and small phrases of an answer.  A figure of the model always says that it is predicted, with its range."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isclose
from typing import Any

import formatting
from formatting import counted, number, plain, topology
from perfmodel.config import MeshSizes, mesh_text
from proposals import facts
from proposals.candidate import HARDWARE_KEYS, changes_chips

Row = Mapping[str, Any]
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


def bottleneck(verdict: Row) -> str:
    """What limits the step, as a noun: `communication`, `the host`."""
    names = {"memory": "HBM bandwidth", "input": "the input pipeline", "host": "the host", "idle": "idle time"}
    return names.get(str(verdict["primary"]), str(verdict["primary"]))


def evidence_text(row: Row) -> str:
    """The value of a row of evidence as pages show it; empty where it was not measured."""
    value = row.get("value")
    return "" if value is None else plain(float(value), row["unit"], row["origin"])


def mesh(row: Row) -> str:
    """The mesh in backticks, without axes of size 1 where that leaves any."""
    return f"`{row['mesh_text']}`" if row.get("mesh_text") else "the mesh"


def mesh_of(sizes: MeshSizes) -> str:
    return f"`{mesh_text(sizes)}`"


def ratio(value: float) -> str:
    return plain(value, "speedup")


def speed(row: Row) -> str:
    """`1.08× per token (80 % interval 0.85–1.37×)`."""
    value = row.get("speedup_per_token")
    if value is None:
        return "no predicted speed-up"
    return f"{ratio(value)} per token{within(row)}"


def within(row: Row) -> str:
    """` (80 % interval 0.85–1.37×)`; empty where nothing is predicted to change."""
    return "" if (range_text := span(row)) == "–" else f" (80 % interval {range_text})"


def span(row: Row) -> str:
    """The range of a speed-up; a dash for a single value, as of the current configuration."""
    low, high = row.get("speedup_low80"), row.get("speedup_high80")
    if not low or not high:
        return "not known"
    return formatting.span(low, high, "speedup") if ratio(low) != ratio(high) else "–"


def fewer_chips(row: Row) -> bool:
    """Whether a configuration is for another part of the machine; there its confidence is that each chip gains."""
    return changes_chips(row.get("changes") or {})


def keeps(row: Row) -> bool:
    """Whether it is the current configuration: nothing is predicted, and its confidence is that keeping it is right."""
    return not row.get("changes") and isclose(row.get("speedup_per_token") or 0.0, 1.0) and span(row) == "–"


def gains(row: Row) -> str:
    """What a confidence is of, after `that it`: on fewer chips a step may take longer and still gain for each chip."""
    return "gains per token and chip" if fewer_chips(row) else "gains at all"


def sure(row: Row) -> str:
    """`64 %`; on fewer chips `64 % per token and chip`; of the current configuration that keeping it is right."""
    if keeps(row):
        return f"{percent(row['confidence_share'])} that keeping it is right"
    return percent(row["confidence_share"]) + (" per token and chip" if fewer_chips(row) else "")


def step(row: Row) -> str:
    """The predicted step time with its range."""
    time = row.get("step_time_s")
    if isinstance(time, Mapping):
        estimate, low, high = (plain(time[key], "s", "predicted") for key in ("estimate", "low80", "high80"))
        return f"{estimate} (80 % interval {low} to {high})" if low != high else estimate
    return plain(time, "s") if time else "not measured"


def estimate(row: Row, origin: str = "") -> str:
    """The step time; origin: of a single number, as of the current configuration."""
    time = row.get("step_time_s")
    if isinstance(time, Mapping):
        return plain(time["estimate"], "s", "predicted")
    return plain(time, "s", origin) if time else "–"


def percent(value: float) -> str:
    """A confidence: whole per cents, as it is known no better."""
    return plain(value, "probability")


def share(value: float, origin: str = "") -> str:
    return plain(value, "share", origin)


def time(value: float, origin: str = "") -> str:
    return plain(value, "s", origin)


def traffic(row: Mapping[str, Any], side: str) -> str:
    """Communication of one side, `before` or `after`: its time, or its share where no step time was measured."""
    seconds, part = row.get(f"{side}_s"), row.get(f"{side}_share") or 0.0
    if not (part if seconds is None else seconds) > 0:
        return "none"
    return f"{share(part)} of device time" if seconds is None else time(seconds)


def size(value: float) -> str:
    return plain(value, "bytes")


def memory(row: Row) -> str:
    """`12.3 GB of 15.9 GB`, or that nobody knows."""
    held = row.get("hbm_per_chip_bytes")
    if not held or held.get("total") is None:
        return "not known"
    return f"{size(held['total'])} of {size(held['capacity'])}"


def changes(row: Row) -> str:
    """Changed keys in a few words; empty where there are none."""
    changed = row.get("changes") or {}
    parts = [setting(key, value) for key, value in changed.items() if key not in HARDWARE_KEYS]
    return ", ".join([*parts, *_chips(changed)])


def _chips(changed: Row) -> list[str]:
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


def configuration(row: Row) -> str:
    """Mesh and changes as one name."""
    changed = changes(row)
    return f"{mesh(row)} with {changed}" if changed else mesh(row)


def lower_first(text: str) -> str:
    """The text as it goes on in a sentence; names and abbreviations keep their capitals."""
    word = text.split(" ", 1)[0]
    return text[:1].lower() + text[1:] if word[1:].islower() or word == "A" else text


def title(row: Row) -> str:
    return f"**Proposal {row['number']}** ({lower_first(str(row['title']))}, {mesh(row)})"


def violations(row: Row) -> list[str]:
    return [str(item["reason"]) for item in row.get("violations", ())]


def step_text(row: Row) -> str:
    """A neighbouring configuration in words: `model 4 → 2, data 8 → 16`, `a global batch of 512`."""
    changed = row.get("changes") or {}
    return (
        f"a global batch of {changed['global_batch']:,}"
        if row.get("varies") == "batch" and "global_batch" in changed
        else str(row["step"])
    )


def rule(name: str) -> str:
    """The name of a rule of `perfmodel.legality` in words."""
    return {"kv_heads": "KV heads", "d_ff": "FFN width", "axis_role": "role of an axis"}.get(
        name, name.replace("_", " ")
    )


def open_questions(row: Row) -> list[str]:
    """Why a configuration is only not known to be illegal."""
    return [str(text) for text in row.get("lowers_confidence", ()) if OPEN.match(str(text))]


def allowed(row: Row) -> str:
    if row.get("violations"):
        return f"no: {rule(row['violations'][0]['rule'])}"
    return "not certain" if open_questions(row) else "yes"


def rate(value: float) -> str:
    """Bytes per second: `45 GB/s`."""
    return plain(value, "bytes_per_s")


def flops(value: float) -> str:
    """FLOPs per second: `459 TFLOP/s`."""
    return plain(value, "flops_per_s")


def inconclusive(row: Row) -> str:
    """Says so where the 80 % interval includes no gain and no loss."""
    low, high = row.get("speedup_low80"), row.get("speedup_high80")
    return " The interval includes 1: *inconclusive* until measured." if low and high and low < 1 < high else ""


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def chip_hours(value: float) -> str:
    return f"{number(value)} chip-hours"


def days(value: float) -> str:
    return time(value * 86400)
