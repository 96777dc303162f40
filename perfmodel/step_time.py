"""Step time: bounds, estimate, breakdown; and `predict`, the model's front door.

The lower bound lets every resource work at its best and at the same time: the largest term.  The upper bound lets
nothing overlap: the sum.  The estimate hides what the schedule can hide (scaling book 1.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from formatting import plain
from perfmodel import memory
from perfmodel.config import ExperimentConfig, Mesh, product_errors
from perfmodel.efficiency import Efficiencies, EfficiencyTable, ErrorRange, load_efficiencies
from perfmodel.execution import ExecutionProfile, framework_of, profile_named
from perfmodel.priced import Priced
from perfmodel.special import normal_cdf
from perfmodel.terms import Terms, step_terms
from perfmodel.topology import Floats
from perfmodel.traffic import Traffic
from perfmodel.workload import GROUPS, REMAT, Workload, chip_of, from_config

#: The median of what stalls or does not is either; how sharply it goes from one to the other with the chance.
SHARP = 8.0
MFU_CONVENTION = (
    "model FLOPs: 6 per matmul parameter per token (embedding lookup excluded, output head included) plus causal "
    "attention scores (half of the full square); recompute excluded; over the dense peak of the training precision"
)


def combine(t: Terms, e: Efficiencies) -> Priced:
    """Price terms under efficiencies.  Cheap: a fit calls it thousands of times on the same terms."""
    is_full = t.remat == REMAT.index("full")
    is_offload = t.remat == REMAT.index("offload")
    is_minimal = t.remat == REMAT.index("minimal")
    spares = t.recomputed * e.recompute_full
    again = np.where(is_full, e.recompute_full, np.where(is_offload, e.recompute_offload, spares))
    scores_again = np.where(is_minimal, e.recompute_minimal, again)

    year = np.where(np.isnan(t.software_year), e.software_year, t.software_year)
    # Kernels of a generation improve most in their first year: older software counts as a year old.
    age = np.clip(year - e.software_year, -1.0, 1.0)
    speed = np.exp(np.asarray(e.software_per_year) * age)
    tall = t.rows / (t.rows + e.rows_half)
    # Times add up, so inverse efficiencies do: projections as wide as the heads, the MLP as wide as d_ff.
    by_mlp = t.mlp_share * (1.0 + e.width_half / t.mlp_narrow)
    shape = tall / (by_mlp + (1.0 - t.mlp_share) * (1.0 + e.width_half / t.heads_narrow))
    expert_tall = t.expert_rows / (t.expert_rows + e.expert_rows_half)
    expert_wide = t.expert_narrow / (t.expert_narrow + e.expert_width_half)
    expert_shape = np.where(t.expert_rows > 0, expert_tall * expert_wide, 1.0)
    matmul = np.asarray(e.matmul) * shape
    dense = (t.dense_s + again * t.dense_forward_s) / matmul
    experts = (t.experts_s + again * t.experts_forward_s) / (np.asarray(e.matmul) * e.expert * expert_shape)
    scores = (t.scores_s + scores_again * t.scores_forward_s) * t.scores_padding / np.asarray(e.attention)
    scores = scores * t.narrow_heads ** np.asarray(e.narrow_heads)
    head = t.head_s / (np.asarray(e.matmul) * tall * e.head)
    # A product streams its weights from HBM as it computes: the slower of both determines the time (book 1.1.2), which
    # is the weights where a chip has few tokens.
    streamed = t.hbm_weights_s / np.asarray(e.hbm)
    with_weights = _slower(dense + experts + head, streamed)
    products = (with_weights + scores) / speed
    launches = (t.layer_passes * e.layer_s + t.moe_layer_passes * e.moe_layer_s) * (3.0 + again) / 3.0
    launches = launches / np.exp(np.asarray(e.launch_per_year) * age)

    # Norms, activation functions and the optimizer run beside no product; what fusion saves of them is not exposed.
    elementwise = (t.hbm_activations_s + again * t.hbm_recompute_s + t.hbm_optimizer_s) / np.asarray(e.hbm)
    softmax = (t.softmax_s + scores_again * t.softmax_forward_s) / np.asarray(e.hbm)
    hbm_exposed = (elementwise * e.hbm_exposed + softmax) / speed
    work = products + hbm_exposed

    stages = t.traffic["pipeline"]
    beside = np.where(stages.domains > 1, 1.0, 0.0)
    ici: dict[str, Floats] = {}
    exposed: dict[str, Floats] = {}
    hidden: Floats = np.zeros(1)
    dcn_total, dcn_exposed = np.zeros(1), np.zeros(1)
    for name, traffic in t.traffic.items():
        inside = traffic_s(traffic, e, beside)
        across = traffic.dcn_s / np.asarray(e.dcn)
        share = overlap(traffic, e)
        ici[name] = inside
        exposed[name] = inside * (1.0 - share)
        dcn_total = dcn_total + across
        dcn_exposed = dcn_exposed + across * (1.0 - np.asarray(e.overlap_dcn))
        hidden = hidden + inside * share + across * e.overlap_dcn
    # What the schedule would hide must fit beside the compute; the rest sticks out, in proportion.
    cover = _slower(work, launches) / e.architecture
    sticking = np.maximum(0.0, 1.0 - cover / np.maximum(hidden, 1e-30))
    for name, traffic in t.traffic.items():
        share = overlap(traffic, e)
        exposed[name] = exposed[name] + sticking * share * ici[name]
    dcn_exposed = dcn_exposed + sticking * e.overlap_dcn * dcn_total

    # A host that launches kernels more slowly than the chip finishes them, collectives of the layers included,
    # determines the time; in between both show.
    in_layers = exposed["model"] + exposed["seq"] + exposed["expert"]
    busy = _slower(work / e.architecture + in_layers, launches / e.architecture) - in_layers
    waiting = busy - work
    hbm = np.minimum(streamed / speed + hbm_exposed, busy)
    exposed_comms = sum(exposed.values(), np.zeros(1)) + dcn_exposed

    bubble = t.bubble * (busy + in_layers + exposed["pipeline"])
    host = t.host_s * (1.0 - np.asarray(e.host_overlap))
    slow = np.asarray(e.straggler) * t.doublings_of_hosts + np.asarray(e.slice_straggler) * t.doublings_of_slices
    straggling = slow * (busy + exposed_comms + bubble)
    overhead = e.step_s + host + straggling
    smooth = busy + exposed_comms + bubble + overhead
    # A pipelined job that has a slow host loses time at every micro-batch; whether it has one, its size alone tells.
    # One whose memory is full loses about as much.
    stall = np.asarray(e.stall_s) * t.micro_batches * (1.0 - 1.0 / t.stages)
    quick_hosts = np.where(t.hosts > 1, np.exp(-np.asarray(e.stall_per_host) * t.hosts), 1.0)
    with np.errstate(divide="ignore"):
        full = normal_cdf(np.log(t.memory_share / e.full_at) / e.full_spread)
    chance = np.where((t.stages > 1) & (stall > 0), 1.0 - quick_hosts * (1.0 - full), 0.0)
    overhead = overhead + stall * chance**SHARP / (chance**SHARP + (1.0 - chance) ** SHARP)
    estimate = busy + exposed_comms + bubble + overhead

    executed = t.dense_s + t.experts_s + t.scores_s + t.head_s
    executed = executed + again * (t.dense_forward_s + t.experts_forward_s) + scores_again * t.scores_forward_s
    parts = {"compute": products + waiting, "hbm": hbm_exposed}
    parts |= {f"ici:{name}": value for name, value in exposed.items()}
    parts |= {"dcn": dcn_exposed, "bubble": bubble, "overhead": overhead}
    # The fixed times of collectives may hide beside launches; no resource is asked for longer than the step.
    links = {f"ici:{name}": np.minimum(value, smooth) for name, value in ici.items()}
    return Priced(
        terms=t,
        efficiencies=e,
        estimate_s=estimate,
        parts_s=parts,
        hbm_s=hbm,
        links_s=links | {"dcn": np.minimum(dcn_total, smooth)},
        exposed_comms_s=exposed_comms,
        smooth_s=smooth,
        stall_s=stall,
        stall_chance=chance,
        hardware_flops_s=executed,
    )


def traffic_s(traffic: Traffic, e: Efficiencies, beside: Floats) -> Floats:
    """Time of one kind of communication on links and network inside a slice, hidden or not.

    beside: 1 where pipeline stages talk over the network meanwhile.
    """
    moving = np.maximum(traffic.ici_s / np.asarray(e.link), traffic.network_s / np.asarray(e.network))
    if traffic.group == "pipeline":
        return np.asarray(moving)
    beyond = np.maximum(traffic.domains - 1.0, 0.0) ** np.asarray(e.network_power)
    call = np.where(traffic.ranks > 1, e.message_s + e.network_message_s * beyond, 0.0)
    if traffic.group == "model":
        call = call + np.where(traffic.ranks > 1, beside * e.beside_pipeline_s * traffic.ranks, 0.0)
    each = moving + traffic.calls * call
    after = moving + np.asarray(e.reduce_s) * np.log2(np.maximum(traffic.ranks, 1.0))
    seconds: Floats = np.where(traffic.sharded > 0, after, np.where(traffic.reduced > 0, moving, each))
    return seconds


def overlap(traffic: Traffic, e: Efficiencies) -> Floats:
    """Share of one kind of communication that the schedule can hide."""
    share = np.asarray(getattr(e, f"overlap_{traffic.overlap}"))
    return np.where(traffic.reduced > 0, np.asarray(e.overlap_reduce), share)


def _slower(one: Floats, other: Floats) -> Floats:
    """Time of two that work side by side: the larger, and somewhat more where they are alike.  Of the exponents, 1 adds
    both, infinity takes the larger; 3 is between."""
    both: Floats = np.cbrt(one * one * one + other * other * other)
    return both


@dataclass(frozen=True)
class Prediction:
    """What the model says of one configuration.  Seconds, bytes, shares 0–1; None where `missing` names what lacks.

    step_time_s: lower, estimate, upper, low80, high80.  breakdown_s: time each resource is asked for (compute at best,
    hbm, ici by axis, dcn, bubble, overhead) and exposed_comms, the part of ici and dcn that the
    estimate does not hide.  parts_s: what the estimate is made of, adding up to it.
    hbm_per_chip_bytes: params, optimizer, gradients, activations, total, capacity.  framework: the execution profile it
    is priced as; error: of held-out runs as far from the measured ones as this configuration; stall: `probability` and
    `step_time_s` of a step that stalls, None where nothing does.  calibrated_from: the run whose evidence it is priced
    by (`price.Evidence.facts`) and the `speedup` {estimate, low80, high80} per token and chip; None without evidence.
    """

    step_time_s: Mapping[str, float] | None = None
    breakdown_s: Mapping[str, Any] | None = None
    parts_s: Mapping[str, Any] | None = None
    hbm_per_chip_bytes: Mapping[str, float | None] | None = None
    fits: bool | None = None
    mfu: float | None = None
    hfu: float | None = None
    tokens_per_s_per_chip: float | None = None
    mfu_convention: str = MFU_CONVENTION
    violations: tuple[Any, ...] = ()
    missing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    framework: ExecutionProfile | None = None
    error: ErrorRange | None = None
    stall: Mapping[str, float] | None = None
    calibrated_from: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The contract's object of `asap predict`."""
        return {
            **{name: getattr(self, name) for name in _NUMBERS},
            "violations": [getattr(v, "to_json", lambda v=v: v)() for v in self.violations],
            "missing": list(self.missing),
            "warnings": list(self.warnings),
            "framework": self.framework.name if self.framework else None,
            "error": self.error.to_json() if self.error else None,
            "stall": self.stall,
            **({"calibrated_from": dict(self.calibrated_from)} if self.calibrated_from is not None else {}),
        }


_NUMBERS = (
    "step_time_s", "breakdown_s", "parts_s", "hbm_per_chip_bytes", "fits", "mfu", "hfu", "mfu_convention",
    "tokens_per_s_per_chip",
)  # fmt: skip


def missing_facts(config: ExperimentConfig) -> tuple[str, ...]:
    """Dotted names of what a full prediction needs and the configuration lacks."""
    training = config.training
    needed = {
        "model": config.model,
        "training.global_batch": training.global_batch,
        "training.seq_len": training.seq_len,
    }
    return tuple(name for name, value in needed.items() if value is None)


def predict(config: ExperimentConfig, efficiencies: Efficiencies | EfficiencyTable | None = None) -> Prediction:
    """Step time and memory of one configuration, as far as it says enough.

    efficiencies: a set for this configuration, a table to resolve, or None for the shipped table.  Raises ConfigError
    for a chip that is not known or a mesh whose product is not the number of chips.
    """
    from perfmodel import legality

    check_products(config)
    missing = missing_facts(config)
    if config.model is None or missing:
        known = memory.parameters_only(config) if config.model is not None else None
        return Prediction(
            hbm_per_chip_bytes=known,
            fits=memory.fits_so_far(known),
            violations=legality.check(config),
            missing=missing,
        )
    if efficiencies is None:
        efficiencies = load_efficiencies()
    error = None
    if isinstance(efficiencies, EfficiencyTable):
        error = efficiencies.errors_of(config)
        efficiencies = efficiencies.for_config(config)
    workload = from_config(config)
    terms = step_terms(workload)
    priced = combine(terms, efficiencies)
    breakdown = by_axis(config.mesh, priced.resources_s, workload)
    # Groups of axes that share an axis share its links.
    lower = max(_first(priced.lower_s), *breakdown["ici"].values(), 0.0)
    used = memory.per_chip(workload)
    estimate = _first(priced.estimate_s)
    peak = _first(workload.chip.peak)
    return Prediction(
        step_time_s={
            "lower": lower,
            "estimate": estimate,
            "upper": _first(priced.upper_s),
            "low80": max(lower, _first(priced.low80_s)),
            "high80": _first(priced.high80_s),
        },
        breakdown_s=breakdown | {"exposed_comms": _first(priced.exposed_comms_s)},
        parts_s=by_axis(config.mesh, priced.parts_s, workload),
        hbm_per_chip_bytes={name: _first(value) for name, value in used.parts().items()},
        fits=bool(used.fits.reshape(-1)[0]),
        mfu=_first(terms.model_flops_per_chip) / (estimate * peak),
        hfu=_first(priced.hardware_flops_s) / estimate,
        tokens_per_s_per_chip=_first(terms.tokens_per_chip) / estimate,
        violations=legality.check(config, used),
        warnings=(*_framework_assumed(config), *_assumptions(used)),
        framework=profile_named(framework_of(config), chip_of(config.hardware).kind),
        error=error,
        stall=_stall(priced),
    )


def _stall(priced: Priced) -> dict[str, float] | None:
    chance = _first(priced.stall_chance)
    if chance <= 0.0 or _first(priced.stall_s) <= 0.0:
        return None
    return {"probability": chance, "step_time_s": _first(priced.smooth_s) + _first(priced.stall_s)}


def _framework_assumed(config: ExperimentConfig) -> tuple[str, ...]:
    """What was taken for granted of the program, in words."""
    framework = framework_of(config)
    profile = profile_named(framework, chip_of(config.hardware).kind)
    if framework is None:
        return (f"The framework (software.framework) is not given: priced as {profile.title}.",)
    if not profile.has_measured(framework):
        return (f"No runs of {framework[:60]} were measured: priced as {profile.title}, with a wider interval.",)
    return ()


def _assumptions(used: memory.MemoryUse) -> tuple[str, ...]:
    """What the prediction took for granted of the memory, in words."""
    spared, kept = _first(used.spared), _first(used.activations)
    if spared <= 0:
        return ()
    return (
        "training.remat is not given: saving all activations would need "
        f"{plain(kept + spared, 'bytes', 'predicted')}; recompute or offload is assumed to leave the "
        f"{plain(kept, 'bytes', 'predicted')} that fit; its time is part of the step.",
    )


def check_products(config: ExperimentConfig) -> None:
    """Raise ConfigError unless the mesh names every chip once (contract, section 4)."""
    for error in product_errors(config.mesh, config.hardware):
        raise error


def by_axis(mesh: Mesh, values: Mapping[str, Floats], workload: Workload) -> dict[str, Any]:
    """Flat parts as {compute, hbm, ici {axis: s}, dcn, …}: a group's time goes to its axes by their share of the links.

    A group that spans several axes drives them at once; an axis carries in proportion to the logarithm of its size.
    """
    ici = {axis: 0.0 for axis, _ in mesh.ici}
    rest: dict[str, Any] = {}
    for name, value in values.items():
        if not name.startswith("ici:"):
            rest[name] = _first(value)
            continue
        members = GROUPS[name.removeprefix("ici:")]
        weights = {axis: float(np.log(size)) for axis, size in mesh.ici if mesh.role(axis) in members and size > 1}
        total = sum(weights.values())
        for axis, weight in weights.items():
            ici[axis] += _first(value) * weight / total
    return {"compute": rest.pop("compute"), "hbm": rest.pop("hbm"), "ici": ici, **rest}


def _first(value: Floats) -> float:
    return float(np.asarray(value).reshape(-1)[0])
