"""Figures of the plan, the configuration and the chip: what is predicted of each proposal, and what was stated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from formatting import plain, span
from perfmodel.chips import Chip
from perfmodel.config import ExperimentConfig, flat_sizes
from proposals import facts
from proposals.agents.figures.figure import CHIP, CONFIGURATION, PREDICTED_PART, Figure, figure
from proposals.agents.words import part_name
from proposals.plan import Plan, Predicted, ProposalPlan

_MEMORY = {"params": "weights", "optimizer": "optimizer state", "total": "total memory"}
_MEMORY_BY = "memory model: bytes per chip under this mesh, weight sharding, batch and remat policy"
_STEP_BY = "predicted step of this configuration × measured step ÷ predicted step of the current one"
_SPEED_BY = "time per token of the current configuration ÷ time per token of this one"


def predicted(plan: Plan, current: str = "the current configuration") -> Iterator[Figure]:
    """All figures of a plan: those of the current configuration, of each proposal, and what changes between them."""
    base = plan.baseline
    yield from _prediction_figures(base, current, 2, plan)
    for item in plan.proposals:
        name = f"proposal {item.rank}"
        yield from _prediction_figures(item.predicted, name, 3, plan)
        yield from _beside(item, name, base)
    yield from figure(
        "HBM that a program can fill",
        base.hbm_per_chip_bytes.capacity if base.hbm_per_chip_bytes else None,
        "bytes",
        "computed",
        "proposals",
        counts="usable HBM less what the program's own buffers keep",
        weight=4,
    )
    error = plan.model_error
    if error:
        means = str(error.get("meaning", "")).rstrip(".")
        yield from figure(
            "median error of the performance model on held-out runs", error.get("median"), "share", "measured",
            "accuracy", formula="median of |predicted ÷ measured − 1| over runs that the fit had not seen",
            counts=f"{means}; an error of the step time of a known run, not of a proposal's gain",
            inputs=(("held-out runs", f"{error['rows']:,}"),) if error.get("rows") else (), weight=5,
        )  # fmt: skip


def _prediction_figures(prediction: Predicted, name: str, weight: int, plan: Plan) -> Iterator[Figure]:
    more: dict[str, Any] = {"of": (name,), "weight": weight}
    step, measured = prediction.step_time_s, plan.baseline.step_time_s
    inputs = (("current step", plain(measured.estimate, "s")),) if measured else ()
    for key, label in (
        ("estimate", "step time"), ("low80", "low end of the 80 % interval of the step time"),
        ("high80", "high end of the 80 % interval of the step time"),
    ):  # fmt: skip
        yield from figure(
            f"{label} of {name}",
            getattr(step, key, None),
            "s",
            "predicted",
            "proposals",
            formula=_STEP_BY,
            inputs=inputs,
            **more,
        )
    low, high = ends = prediction.speedup_low80, prediction.speedup_high80
    within = (("80 % interval", span(low, high, "speedup")),) if low and high and low != high else ()
    times = (("step time", plain(step.estimate, "s", "predicted")), *inputs) if step else ()
    yield from figure(f"speed-up per token of {name}", prediction.speedup, "speedup", "predicted", "proposals",
                      formula=_SPEED_BY, inputs=(*times, *within), **more)  # fmt: skip
    for end, label in zip(ends if within else (), ("low", "high"), strict=False):
        yield from figure(f"{label} end of the 80 % interval of the speed-up of {name}", end, "speedup", "predicted",
                          "proposals", counts="eight in ten such results lie within it", **more)  # fmt: skip
    whole = step.estimate if step else sum(prediction.breakdown_s.values())
    for part, value in prediction.breakdown_s.items():
        label = f"{part_name(part)} of {name}"
        said = {"formula": PREDICTED_PART, "counts": "exclusive part of the step", **more, "of": (name, part)}
        yield from figure(label, value, "s", "predicted", "proposals", **said)
        if whole:
            yield from figure(f"{label}, share", value / whole, "share", "predicted", "proposals", **said)
    for part, value in _parts(prediction).items():
        if part == "capacity":
            continue
        label = f"{_MEMORY.get(part, part)} per chip of {name}"
        yield from figure(label, value, "bytes", "predicted", "proposals", formula=_MEMORY_BY, **more)


def _beside(item: ProposalPlan, name: str, base: Predicted) -> Iterator[Figure]:
    """What only a proposal has, and how its parts differ from the current configuration's."""
    yield from figure(
        f"confidence of {name}",
        item.confidence,
        "probability",
        "predicted",
        "proposals",
        of=(name,),
        weight=4,
        formula="calibrated on predicted against measured gains of pairs of runs",
    )
    yield from figure(
        f"memory headroom of {name}",
        item.memory_headroom_bytes,
        "bytes",
        "predicted",
        "proposals",
        of=(name,),
        formula="usable HBM − memory per chip",
        weight=3,
    )
    for moved in item.communication:
        axes = "DCN" if moved.dcn else " + ".join(moved.axes) or "an axis that is not known"
        for side, of in (("before", "the current configuration"), ("after", name)):
            for key, unit in (("s", "s"), ("share", "share")):
                yield from figure(
                    f"exposed communication of {moved.moves} on {axes} of {of}", getattr(moved, f"{side}_{key}"), unit,
                    "predicted", "proposals", counts="the part that no compute hides", of=(of, *moved.axes), weight=3,
                )  # fmt: skip
    for held in item.per_chip:
        unit, origin = ("count", "computed") if held.name in ("sequences", "tokens") else ("bytes", "predicted")
        for value, of in ((held.before, "the current configuration"), (held.after, name)):
            yield from figure(f"{held.name} per chip of {of}", value, unit, origin, "proposals", of=(of,), weight=2)
    parts = (
        (base.breakdown_s, item.predicted.breakdown_s, "s", part_name),
        (_parts(base), _parts(item.predicted), "bytes", lambda k: _MEMORY.get(k, k)),
    )
    for before, after, unit, named in parts:
        for part in after:
            change = abs(after[part] - before[part]) if part in before else 0.0
            if change:
                yield from figure(
                    f"change of {named(part)} from the current configuration to {name}", change, unit, "predicted",
                    name, formula=f"{named(part)} of {name} − of the current configuration",
                    inputs=(("current", plain(before[part], unit)), (name, plain(after[part], unit))),
                    of=(name, part), weight=1,
                )  # fmt: skip
    was, now = base.step_time_s, item.predicted.step_time_s
    if was and now and was.estimate != now.estimate:
        yield from figure(
            f"change of the step time from the current configuration to {name}", abs(now.estimate - was.estimate), "s",
            "predicted", "proposals", formula="step time − current step time", of=(name,), weight=1,
        )  # fmt: skip


def _parts(prediction: Predicted) -> dict[str, float]:
    """Memory per chip by part, in all, and what a program can fill."""
    return vars(prediction.hbm_per_chip_bytes) if prediction.hbm_per_chip_bytes else {}


def stated(config: ExperimentConfig, chip: Chip) -> Iterator[Figure]:
    """What the configuration and the chip's data say."""
    training: Mapping[str, Any] = {
        "global_batch": config.training.global_batch, "seq_len": config.training.seq_len,
        "grad_accum": config.training.grad_accum, "micro_batch": config.training.micro_batch,
        "tokens per step": config.training.global_batch_tokens, "chips": config.hardware.chips,
    }  # fmt: skip
    for key, value in training.items():
        yield from figure(facts.setting(key), value, "count", "sourced", CONFIGURATION, weight=3)
    for axis, size in flat_sizes(config.mesh.to_json()).items():
        yield from figure(f"size of the axis {axis}", size, "count", "sourced", CONFIGURATION, of=(axis,), weight=2)
    if config.model is not None:
        for key in ("layers", "d_model", "d_ff", "heads", "kv_heads", "vocab", "experts"):
            value = getattr(config.model, key, None)
            yield from figure(f"{key} of the model", value or None, "count", "sourced", CONFIGURATION, weight=2)
    for name, value in chip.peak_flops_per_s.items():
        yield from figure(f"peak {name} of {chip.title}", value, "flops_per_s", "sourced", CHIP, weight=3,
                          counts="dense, per chip")  # fmt: skip
    for key, label, unit, counts in (
        ("hbm_bytes", "nominal HBM", "bytes", f"{chip.hbm_bytes / 2**30:.3g} GiB, printed in GB of 10⁹ bytes"),
        (
            "hbm_usable_bytes",
            "usable HBM",
            "bytes",
            f"nominal HBM, {plain(chip.hbm_bytes, 'bytes')} of 10⁹ bytes ({chip.hbm_bytes / 2**30:.3g} GiB), minus "
            "what the runtime reserves",
        ),
        ("hbm_bytes_per_s", "peak HBM bandwidth", "bytes_per_s", "per chip"),
        ("ici_link_bytes_per_s", "one ICI link", "bytes_per_s", "one link, one direction"),
        ("nvlink_bytes_per_s", "NVLink of a GPU", "bytes_per_s", "all links of a GPU, one direction"),
        ("dcn_bytes_per_s_per_host", "network of a host", "bytes_per_s", "one direction"),
        ("host_link_bytes_per_s", "link between host and chip", "bytes_per_s", "one direction"),
    ):
        yield from figure(f"{label} of {chip.title}", getattr(chip, key) or None, unit, "sourced", CHIP, counts=counts,
                          weight=3)  # fmt: skip
    if chip.ici_link_bytes_per_s:
        yield from figure(f"both directions of an ICI ring of {chip.title}", 2 * chip.ici_link_bytes_per_s,
                          "bytes_per_s", "computed", CHIP, weight=2,
                          counts="two links, where the axis spans a torus dimension with wraparound")  # fmt: skip
