"""Figures of the diagnosis: key figures, parts of the step, steps and cores, evidence, ops, collectives, groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import mean, median

from diagnosis import kpi_formulas
from diagnosis.report import AxisCollective, Diagnosis, Finding, OpDiagnosis, SourcedValue
from experiments import glossary
from experiments.step_profile import PROFILE, StepProfile
from formatting import plain
from proposals.agents.figures.figure import (
    BREAKDOWN,
    COLLECTIVES,
    KEY_FIGURES,
    OPS,
    PREDICTED_PART,
    ROOFLINE,
    STEPS,
    Figure,
    figure,
)
from proposals.agents.grounding_facts import stems
from proposals.agents.words import part_name

#: Ops of which every number is a figure; the others are counted in their groups.
MOST_OPS = 400
_OF_OP = (
    ("time_s", "time of {}", "s", "self time, per step and core", 3),
    ("time_share", "share of {}", "share", "self time ÷ device time", 3),
    ("exposed_s", "exposed time of {}", "s", "the part of its time in flight that no other op hid", 2),
    ("in_flight_s", "time in flight of {}", "s", "from its start to its end, per step and core", 2),
    ("roofline_efficiency", "roofline efficiency of {}", "share",
     "achieved rate ÷ min(peak FLOP/s, intensity × peak HBM bandwidth)", 2),
    ("operational_intensity", "arithmetic intensity of {}", "FLOP/byte", "FLOPs ÷ HBM bytes", 2),
    ("flops_per_s", "FLOP rate of {}", "flops_per_s", "FLOPs ÷ time", 2),
    ("hbm_bytes_per_s", "HBM bandwidth of {}", "bytes_per_s", "HBM bytes ÷ time", 2),
    ("flops", "FLOPs of {}", "flops", "per step and core", 1),
    ("hbm_bytes", "HBM bytes of {}", "bytes", "per step and core", 1),
    ("collective_bytes", "bytes of {}", "bytes", "per step and core", 1),
    ("achieved_bytes_per_s", "achieved bandwidth of {}", "bytes_per_s", "bytes over the links ÷ time in flight", 2),
    ("possible_bytes_per_s", "possible bandwidth of {}", "bytes_per_s", "links that its axis can use × their rate", 2),
    ("core_max_s", "time of {} on its slowest core", "s", "per step, on that core alone", 1),
    ("core_min_s", "time of {} on its fastest core", "s", "per step, on that core alone", 1),
    ("occurrences", "occurrences of {}", "count", "over all recorded steps and cores", 1),
)  # fmt: skip
_OF_COLLECTIVE = (
    ("time_s", "time of the {}", "s", "self time, per step and core", 4),
    ("share", "share of the {}", "share", "self time ÷ device time", 4),
    ("exposed_s", "exposed time of the {}", "s", "the part of its time in flight that no other op hid", 4),
    ("in_flight_s", "time in flight of the {}", "s", "from start to end, per step and core", 3),
    ("hidden_share", "overlapped share of the {}", "share", "hidden by other ops ÷ time in flight", 3),
    ("bytes", "bytes of the {}", "bytes", "per step and core", 3),
    ("achieved_bytes_per_s", "achieved bandwidth of the {}", "bytes_per_s", "bytes ÷ time in flight", 4),
    ("possible_bytes_per_s", "possible bandwidth of the {}", "bytes_per_s", "links its axis can use × their rate", 4),
)  # fmt: skip


def measured(profile: StepProfile, diagnosis: Diagnosis) -> Iterator[Figure]:
    """All figures of a diagnosis."""
    yield from _kpis(profile, diagnosis)
    yield from _parts(diagnosis)
    yield from _evidence("the verdict", diagnosis.bottleneck.evidence, "verdict", 5)
    yield from figure(
        f"confidence that {diagnosis.bottleneck.primary} is the bottleneck", diagnosis.bottleneck.confidence, "share",
        "computed", "verdict", counts="accuracy on generated steps at this margin, by data quality", weight=4,
    )  # fmt: skip
    for number, item in enumerate(diagnosis.findings, start=1):
        yield from _finding(number, item, diagnosis.kpis.get("step_time_s"))
    if diagnosis.basis != PROFILE:
        return
    yield from _steps(profile, diagnosis)
    for op in diagnosis.ops[:MOST_OPS]:
        yield from _op(op)
    for key, label, unit in (("flops", "FLOPs of all recorded ops", "flops"),
                             ("hbm_bytes", "HBM bytes of all recorded ops", "bytes")):  # fmt: skip
        parts = [value for op in diagnosis.ops if (value := getattr(op, key))]
        yield from figure(label, sum(parts) or None, unit, "computed", OPS, weight=3,
                          counts=f"sum over the {len(parts):,} ops that report it, per step and core")  # fmt: skip
    for row in diagnosis.collectives:
        yield from _collective(row)
    yield from _sums(diagnosis.collectives)
    yield from _groups(diagnosis.ops)
    roof = diagnosis.roofline
    for value, label, unit in (
        (roof.peak_flops_per_s, "peak FLOP/s of a core", "flops_per_s"),
        (roof.peak_hbm_bytes_per_s, "peak HBM bandwidth of a core", "bytes_per_s"),
        (roof.ridge_flops_per_byte, "ridge point", "FLOP/byte"),
    ):
        yield from figure(label, value, unit, "sourced", ROOFLINE, counts="as the profile states the device", weight=3)
    memory = profile.memory
    yield from figure("peak memory", memory.peak_bytes, "bytes", "measured", KEY_FIGURES,
                      counts="of the worst core", weight=5)  # fmt: skip
    yield from figure("memory capacity", memory.capacity_bytes, "bytes", "measured", KEY_FIGURES,
                      counts="what the profile's allocator may hand out", weight=4)  # fmt: skip


def _kpis(profile: StepProfile, diagnosis: Diagnosis) -> Iterator[Figure]:
    step = diagnosis.kpis.get("step_time_s")
    for key, value in diagnosis.kpis.items():
        known = glossary.by_key().get(key)
        formula = kpi_formulas.formula(key, diagnosis, {"computed": profile.computed})
        inputs: tuple[tuple[str, str], ...] = ()
        if step and value and key not in ("step_time_s", "mfu") and key in glossary.by_key():
            inputs = (("step time", plain(step, "s")),)
        yield from figure(
            (known.term if known else key.removesuffix("_s").replace("_", " ")), value,
            "s" if key.endswith("_s") else "share", "measured" if diagnosis.measured or key == "step_time_s" else
            "predicted", KEY_FIGURES, formula=formula, inputs=inputs, field=f"kpi-{key}", weight=6,
        )  # fmt: skip
    yield from figure(
        "step time that the performance model alone predicts", diagnosis.predicted_step_time_s, "s", "predicted",
        "verdict", counts="not scaled to the measured step time", weight=5,
    )  # fmt: skip


def _parts(diagnosis: Diagnosis) -> Iterator[Figure]:
    origin = "computed" if diagnosis.measured else "predicted"
    formula = "sum of the self times of the part's ops, per step and core" if diagnosis.measured else PREDICTED_PART
    seconds = diagnosis.breakdown_s
    for part, value in seconds.items():
        name = part_name(part)
        share = diagnosis.breakdown_share.get(part)
        inputs = (("share of the step", plain(share, "share")),) if share else ()
        yield from figure(
            f"{name}, per step",
            value,
            "s",
            origin,
            BREAKDOWN,
            formula=formula,
            inputs=inputs,
            of=(name,),
            counts="exclusive part of the step",
            field=f"term-{part}",
            weight=6,
        )
    for part, value in diagnosis.breakdown_share.items():
        name = part_name(part)
        inputs = ((name, plain(seconds[part], "s")),) if part in seconds else ()
        yield from figure(f"{name}, share of the step", value, "share", origin, BREAKDOWN, formula="part ÷ step time",
                          inputs=inputs, of=(name,), field=f"term-{part}", weight=6)  # fmt: skip


def _evidence(of: str, rows: Sequence[SourcedValue], place: str, weight: int) -> Iterator[Figure]:
    for row in rows:
        terms = stems(row.formula)
        beside = tuple((other.label, str(other)) for other in rows if other is not row and stems(other.label) & terms)
        source = f"read from the {row.source}" if row.source else ""
        yield from figure(
            row.label, row.value, row.unit, row.origin, place, formula=row.formula or source, inputs=beside[:3],
            of=(of,), field=row.field, weight=weight,
        )  # fmt: skip


def _finding(number: int, item: Finding, step: float | None) -> Iterator[Figure]:
    place = f"finding {number}, {item.title}"
    yield from _evidence(f"finding {number}", item.evidence, place, 4)
    amdahl = "Amdahl bound: the step without this time, all else unchanged"
    inputs = (("step time", plain(step, "s")),) if step else ()
    more = {"formula": amdahl, "inputs": inputs, "of": (f"finding {number}",), "weight": 5}
    yield from figure(f"most that finding {number} could save", item.saving_s, "s", "computed", place, **more)
    yield from figure(f"most that finding {number} could save", item.saving_share, "share", "computed", place, **more)
    if step and item.saving_s and item.saving_s < step:
        left = step - item.saving_s
        yield from figure(f"step time if finding {number} cost nothing", left, "s", "computed", place, **more)
        yield from figure(f"largest speed-up by finding {number}", step / left, "speedup", "computed", place, **more)


def _steps(profile: StepProfile, diagnosis: Diagnosis) -> Iterator[Figure]:
    each = "one step, mean over the recorded cores"
    for value, label in (
        (profile.step_time_min_s, "shortest step"), (profile.step_time_max_s, "longest step"),
        (profile.step_time_stdev_s, "standard deviation of the step time"),
    ):  # fmt: skip
        yield from figure(label, value, "s", "measured", STEPS, counts="over the recorded steps", weight=4)
    for step in profile.steps[:200]:
        yield from figure(f"step {step.number}", step.time_s, "s", "measured", STEPS, counts=each, weight=3)
    line = diagnosis.timeline
    means = [mean(row) for row in line.durations_s if row]
    middle = median(means) if means else 0.0
    for core, value in zip(line.cores, means, strict=False):
        yield from figure(f"mean step of {core}", value, "s", "measured", STEPS, counts="mean over its steps",
                          of=(core,), weight=2)  # fmt: skip
        if middle:
            yield from figure(
                f"step of {core} against the median core", abs(value / middle - 1), "share", "computed", STEPS,
                counts="whole duration of its steps, waiting and idle included", of=(core,), weight=2,
            )  # fmt: skip
    for part, rows in line.parts_s.items():
        for core, row in zip(line.cores, rows, strict=False):
            yield from figure(
                f"{part_name(part)} on {core}", mean(row) if row else None, "s", "measured", STEPS,
                counts="gaps and ops on the timeline of this core, mean over its steps", of=(core,), weight=2,
            )  # fmt: skip


def _op(op: OpDiagnosis) -> Iterator[Figure]:
    name = op.name.lstrip("%")
    for key, label, unit, counts, weight in _OF_OP:
        value = getattr(op, key)
        if value:
            inputs = tuple(
                (said, plain(got, unit_))
                for said, got, unit_ in (
                    ("time", op.time_s, "s"), ("bytes", op.collective_bytes, "bytes"), ("FLOPs", op.flops, "flops"),
                )
                if got and key in ("flops_per_s", "hbm_bytes_per_s", "achieved_bytes_per_s", "roofline_efficiency")
            )  # fmt: skip
            origin = "computed" if "possible" in key else "measured"
            yield from figure(label.format(f"`{name}`"), value, unit, origin, OPS, counts=counts, inputs=inputs,
                              of=(name,), weight=weight)  # fmt: skip


def _collective(row: AxisCollective) -> Iterator[Figure]:
    where = f"{row.kind} on {row.axis or 'an axis that is not known'}"
    for key, label, unit, counts, weight in _OF_COLLECTIVE:
        inputs: tuple[tuple[str, str], ...] = ()
        if key == "achieved_bytes_per_s":
            spent = row.in_flight_s or row.time_s
            inputs = tuple(
                (said, plain(got, unit_))
                for said, got, unit_ in (("bytes", row.bytes, "bytes"), ("time", spent, "s"))
                if got
            )
        yield from figure(
            label.format(where), getattr(row, key), unit, "computed" if "possible" in key else "measured", COLLECTIVES,
            counts=counts, inputs=inputs, of=(row.axis or "not matched", row.kind), weight=weight,
        )  # fmt: skip


def _sums(rows: Sequence[AxisCollective]) -> Iterator[Figure]:
    for by in ("axis", "kind"):
        groups: dict[str, list[AxisCollective]] = defaultdict(list)
        for row in rows:
            groups[getattr(row, by) or "an axis that is not known"].append(row)
        for name, group in groups.items():
            of = f"all collectives on {name}" if by == "axis" else f"all {name} ops"
            for key, label, unit in (("time_s", "time of", "s"), ("exposed_s", "exposed time of", "s"),
                                     ("share", "share of", "share")):  # fmt: skip
                parts = [getattr(row, key) for row in group]
                if len(group) > 1 and None not in parts:
                    yield from figure(
                        f"{label} {of}",
                        sum(parts),
                        unit,
                        "measured",
                        COLLECTIVES,
                        counts="sum over kinds and axes, per step and core",
                        of=(name,),
                        weight=4,
                    )


def _groups(ops: Sequence[OpDiagnosis]) -> Iterator[Figure]:
    for by in ("module", "phase", "family", "category", "bound_by", ("module", "phase"), ("phase", "family")):
        keys = (by,) if isinstance(by, str) else by
        sums: dict[tuple[str, ...], list[OpDiagnosis]] = defaultdict(list)
        for op in ops:
            value = tuple(str(getattr(op, key) or "") for key in keys)
            if all(value):
                sums[value].append(op)
        for name, group in sums.items():
            said = " in ".join(f"{key.replace('_', ' ')} {value}" for key, value in zip(keys, name, strict=True))
            counts = f"sum over {len(group):,} ops, per step and core"
            times = [op.time_s for op in group]
            if None not in times:
                yield from figure(f"time of {said}", sum(t or 0.0 for t in times), "s", "measured", OPS, counts=counts,
                                  of=name, weight=4)  # fmt: skip
            yield from figure(f"share of {said}", sum(op.time_share for op in group), "share", "measured", OPS,
                              counts=counts, of=name, weight=4)  # fmt: skip
