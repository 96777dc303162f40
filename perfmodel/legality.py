"""Rules a mesh must keep, each with a name, and whether its memory fits by what is known of a workload's runs.

Rules are arrays over candidates; `check` says it in sentences for one.  A broken rule does not stop the model from
pricing the mesh; it stops the search from proposing it.
Of memory, weights, gradients and optimizer state are what the shape says; activations and buffers are off by a factor
that all configurations of a workload share.  A measured peak fixes it, a run that ran bounds it from above, one that
ran out of memory from below (`memory_posterior`).  Every memory verdict of the product comes from here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import numpy.typing as npt

from formatting import compared, counted
from perfmodel import memory
from perfmodel.arrays import Floats, array_of, special
from perfmodel.config import CANONICAL_ROLES, ROLES, ExperimentConfig, ModelShape, micro_batches
from perfmodel.execution import load_profiles
from perfmodel.memory import MemoryUse
from perfmodel.workload import SHARDING, AxisSizes, Workload, chip_of, from_config, mesh_numbers

Bools = npt.NDArray[np.bool_]

#: Rules in the order in which they are reported, and how a table says that one is broken.
IN_A_FEW_WORDS = {
    "chips": "axis sizes do not multiply to the chip count",
    "axis_role": "axis without a role",
    "topology": "does not fit evenly onto the topology",
    "batch": "batch does not divide",
    "sequence": "sequence does not divide",
    "heads": "heads do not divide",
    "kv_heads": "KV heads do not divide",
    "d_ff": "MLP width does not divide",
    "experts": "experts do not divide",
    "weights": "weights do not divide",
    "layers": "more stages than layers",
    "devices": "nothing to share by the two devices of a chip",
    "schedule": "stages without work or micro-batches",
    "memory": "does not fit in memory",
}
RULES = tuple(IN_A_FEW_WORDS)


@dataclass(frozen=True)
class Violation:
    """A broken rule: its name (one of RULES) and one sentence that says what and why."""

    rule: str
    message: str

    def to_json(self) -> dict[str, str]:
        return {"rule": self.rule, "message": self.message}


def broken_rules(
    sizes: AxisSizes,
    micro_batches: Floats,
    virtual_stages: Floats,
    shape: ModelShape | None,
    global_batch: npt.ArrayLike | None,
    seq_len: npt.ArrayLike | None,
    devices: float = 1.0,
) -> dict[str, Bools]:
    """Which candidates break which rule of divisibility; arrays that broadcast.

    micro_batches: per step.  global_batch: sequences; seq_len: tokens.  devices: of a chip, which share what it holds
    along one more axis.  Rules whose facts are None are left out.
    """
    broken: dict[str, Bools] = {}
    if global_batch is not None:
        # A micro-batch that does not divide a group's share, or is larger than it, leaves a broken number of them.
        whole = np.maximum(1.0, np.rint(micro_batches))
        is_broken = np.abs(micro_batches - whole) > 1e-6
        broken["batch"] = (np.mod(global_batch, sizes.batch_shards * whole) != 0) | is_broken
    if seq_len is not None:
        broken["sequence"] = np.mod(seq_len, sizes.seq) != 0
    if shape is None:
        return broken
    broken["heads"] = np.mod(shape.heads, sizes.model) != 0
    if shape.attention != "mla":
        broken["kv_heads"] = np.mod(shape.kv_heads, sizes.model) != 0
    dense = shape.d_ff if not shape.experts or shape.first_dense_layers or shape.moe_layer_step > 1 else 0
    broken["d_ff"] = (np.mod(dense, sizes.model) != 0) | (np.mod(shape.d_ff_expert, sizes.model) != 0)
    if shape.experts:
        broken["experts"] = np.mod(shape.experts, sizes.expert) != 0
    else:
        broken["experts"] = sizes.expert > 1
    stages = sizes.pipeline * np.where(sizes.pipeline > 1, virtual_stages, 1.0)
    # Embedding and head may fill a slot each, so layers need not divide evenly; but no stage may be empty.
    broken["layers"] = stages > shape.layers + 2
    if devices > 1:
        splits = []
        for role in ("data", "seq", "model"):
            wider = replace(sizes, **{role: getattr(sizes, role) * devices})
            rules = broken_rules(wider, micro_batches, virtual_stages, shape, global_batch, seq_len)
            fails = reduce(np.logical_or, (flags & ~broken[rule] for rule, flags in rules.items()))
            splits.append(fails | (sizes.seq == 1) if role == "seq" else fails)
        broken["devices"] = reduce(np.logical_and, splits)
    return broken


def first_broken(rules: Sequence[npt.ArrayLike]) -> npt.NDArray[np.int16]:
    """Of each candidate the index of the first rule that it breaks, -1 where it keeps all.

    rules: of each, which candidates break it; arrays that broadcast.
    """
    first = np.full(1, -1, dtype=np.int16)
    for number in reversed(range(len(rules))):
        first = np.where(rules[number], np.int16(number), first)
    return first


def has_too_few_micro_batches(w: Workload) -> Bools:
    """nanotron's 1F1B engine asserts at least as many micro-batches as stages less one."""
    return np.asarray((w.training.balanced_stages > 0) & (w.training.micro_batches < w.mesh.pipeline - 1.0))


def has_uneven_turns(w: Workload) -> Bools:
    """Virtual stages take turns of as many micro-batches as there are stages (Megatron-LM, arXiv 2104.04473, 2.2)."""
    stages = w.mesh.pipeline
    uneven = np.mod(np.rint(w.training.micro_batches), stages) != 0
    return np.asarray((stages > 1) & (w.training.virtual_stages > 1) & uneven)


def schedule_fails(w: Workload) -> Bools:
    """Return pipelines that no program can run, or not that of the configuration, whatever the memory (nanotron's).

    Shared out by cost, a head worth three stages or more leaves the last ones without a block: head, cast and loss take
    one each.
    """
    stages, head = w.mesh.pipeline, memory.head_layers(w)
    is_balanced = (w.training.balanced_stages > 0) & (stages > 1)
    has_empty_stage = is_balanced & (stages * head >= 3.0 * (w.model.layers + head))
    return np.asarray(has_too_few_micro_batches(w) | has_empty_stage | has_uneven_turns(w))


def shards_unevenly(w: Workload) -> Bools:
    """Return where a width of the model does not divide among the chips that shard its weights, though the program's
    arrays must (`ExecutionProfile.even_shards`)."""
    even = np.array([profile.even_shards for profile in load_profiles().values()])[w.training.profile]
    shards = w.mesh.links["weights"].size * w.mesh.dcn_fsdp
    sharded = w.training.sharding == SHARDING.index("fsdp")
    return np.asarray(even & sharded & (np.mod(w.model.d_model, shards) != 0))


def of_workload(w: Workload, shape: ModelShape | None, unknown: Collection[str] = ()) -> dict[str, Bools]:
    """Which candidates of a workload break which rule, whatever their memory; arrays that broadcast.

    shape: of the model, None where it is not known.  unknown: dotted names of facts that the workload holds assumed
    values of (`config.missing_facts`); their rules are left out.
    """
    mesh, training = w.mesh, w.training
    broken = broken_rules(
        mesh,
        training.micro_batches,
        training.virtual_stages,
        shape,
        None if "training.global_batch" in unknown else training.global_batch,
        None if "training.seq_len" in unknown else training.seq_len,
        float(w.chip.devices.max()),
    )
    broken["topology"] = mesh.regular == 0
    if shape is not None and not unknown:
        broken["schedule"] = schedule_fails(w)
        broken["weights"] = shards_unevenly(w)
    return broken


def indivisible(config: ExperimentConfig) -> dict[str, bool]:
    """Which rules of divisibility one configuration breaks.  Rules whose facts are missing are left out."""
    training, mesh = config.training, config.mesh
    broken = broken_rules(
        AxisSizes(**{role: array_of(mesh.size(role)) for role in CANONICAL_ROLES}),
        array_of(micro_batches(training, mesh)),
        array_of(training.virtual_stages),
        config.model,
        training.global_batch,
        training.seq_len,
        chip_of(config.hardware).devices_per_chip,
    )
    return {rule: bool(np.any(flags)) for rule, flags in broken.items()}


def check(
    config: ExperimentConfig, used: memory.MemoryUse | None = None, fits: bool | None = None
) -> tuple[Violation, ...]:
    """Return all broken rules of one configuration, in the order of RULES.

    used: its memory where already known; otherwise memory is judged if the configuration says enough.  fits: whether it
    fits by the evidence (`MemoryPosterior.fits`), None to judge by the model alone.
    """
    hardware, mesh, shape, training = config.hardware, config.mesh, config.model, config.training
    messages: dict[str, str] = {}
    if mesh.ici_product != hardware.chips_per_slice or mesh.dcn_product != hardware.slices:
        messages["chips"] = (
            f"The mesh has {mesh.ici_product} chips in {mesh.dcn_product} slices, the hardware "
            f"{hardware.chips_per_slice} in {hardware.slices}."
        )
    unknown = [axis for axis, _ in (*mesh.ici, *mesh.dcn) if mesh.role(axis) not in ROLES]
    if unknown:
        messages["axis_role"] = f"Axis {unknown[0]!r} has no known role; name it in mesh.axis_roles."
    if "chips" not in messages and mesh_numbers(hardware, mesh).regular[0] == 0:
        messages["topology"] = (
            f"{mesh.text()} does not fit evenly onto {'x'.join(map(str, hardware.topology))}: "
            "an axis would cut a dimension into unequal pieces."
        )
    for rule, broken in indivisible(config).items():
        if broken and (text := sentence(rule, config)):
            messages[rule] = text
    if shape is not None and training.global_batch and training.seq_len:
        work = from_config(config)
        if bool(np.any(schedule_fails(work))):
            messages["schedule"] = _schedule_sentence(work)
        if bool(np.any(shards_unevenly(work))):
            shards = int((work.mesh.links["weights"].size * work.mesh.dcn_fsdp)[0])
            messages["weights"] = f"The width {shape.d_model} does not divide evenly among {shards} weight shards."
        used = memory.per_chip(work) if used is None else used
    fits = bool(np.all(used.fits)) if fits is None and used is not None else fits
    if used is not None and fits is False:
        total, capacity = compared(float(used.total.max()), float(used.capacity.min()), "bytes")
        messages["memory"] = f"It needs {total} per chip, but only {capacity} are usable."
    return tuple(Violation(rule, messages[rule]) for rule in RULES if rule in messages)


def _schedule_sentence(w: Workload) -> str:
    stages, micro = int(w.mesh.pipeline[0]), float(w.training.micro_batches[0])
    if has_too_few_micro_batches(w)[0]:
        return f"A pipeline of {stages} stages needs {stages - 1} micro-batches or more; there are {micro:g}."
    if has_uneven_turns(w)[0]:
        return f"Virtual stages need a number of micro-batches divisible by the {stages} stages; there are {micro:g}."
    return f"The output head costs as much as three of {stages} stages, which leaves the last ones without a layer."


def sentence(rule: str, config: ExperimentConfig) -> str | None:
    """Return what `check` says of a configuration that breaks a rule of divisibility, without checking the others.

    None for other rules, and for those of the model where none is given.
    """
    shape, training, mesh = config.model, config.training, config.mesh
    shards, micro, batch = mesh.batch_shards, training.micro_batch or 0, training.global_batch
    by = f"{shards} batch shards times {counted(micro_batches(training, mesh), 'micro-batch')}"
    texts = {
        "batch": f"A global batch of {batch} sequences is not divisible by {by}.",
        "devices": f"A {config.hardware.chip} chip is two devices, but neither batch, sequence nor tensor shards of "
        f"{mesh.text()} can be split once more.",
        "sequence": f"A sequence of {training.seq_len} tokens is not divisible by {mesh.size('seq')} sequence shards.",
    }
    if micro * shards > (batch or 0):
        texts["batch"] = (
            f"A micro-batch of {micro} sequences on each of {shards} batch shards takes more than the global batch of "
            f"{batch}."
        )
    if shape is not None:
        tensor = f"divisible by {mesh.size('model')} tensor shards"
        stages = mesh.size("pipeline")
        texts |= {
            "heads": f"{shape.heads} heads are not {tensor}.",
            "kv_heads": f"{shape.kv_heads} KV heads are not {tensor}.",
            "d_ff": f"The MLP width {shape.d_ff_expert or shape.d_ff} is not {tensor}.",
            "experts": f"{shape.experts} experts are not divisible by {mesh.size('expert')} expert shards.",
            "layers": f"{shape.layers} layers do not fill {stages} stages of {training.virtual_stages} parts.",
        }
    return texts.get(rule)


#: Variance of log(needed / capacity) that configurations have in common, as a share; the rest is each one's own.
COMMON = 0.5
#: Standard deviation of the logarithm of the common factor once a peak was measured: an allocator keeps a little more
#: than it needs.
PEAK_SPREAD = 0.1
#: How far from a run, in logarithms of its weights, gradients and optimizer state per chip, what its activations say
#: beyond the model fades by e: half of nanotron's workloads decided, the others are off by less too
#: (docs/one-price.md).  Another batch or policy on the same shards is as far off as the run.
FADES_OVER = 1.5
#: Change of memory, in logarithms, over which the own error of a run that ran fades by e in that of another: of 22,000
#: pairs of nanotron's runs the likeliest is the least tried.  At 90 to 100 % of the capacity 51 % of the second ran.
ALIKE_WITHIN = 0.1
#: Noise of a run's factor on activations where several were measured, as a share of what the runs have in common.
OWN_SHARE = 0.1
#: Where less than this share of a measured peak is left for activations, some states are offloaded.
LEAST_ACTIVATIONS = 0.02
#: A run that ran although the model expects so many times the capacity is not the one configured: it corrects nothing.
IMPLAUSIBLE = 1.6
#: The common factor, as a logarithm, in standard deviations.
_GRID = np.linspace(-3.5, 3.5, 15)
_STATES = ("params", "optimizer", "gradients")
_ACTIVATIONS = ("activations", "spared", "sparable", "held", "wanted", "runtime")


@dataclass(frozen=True)
class MemoryRun:
    """A run whose memory tells something.  used: as computed, one candidate.  peak_bytes: measured, None if it was not.
    ran_out: probability that it ran out of memory, 0 for one that ran, None where a failure has no known cause."""

    used: MemoryUse
    peak_bytes: float | None = None
    ran_out: float | None = 0.0


@dataclass(frozen=True)
class MemoryPosterior:
    """Factors and weights that correct the computed memory of a workload.

    states: factor on what is computed.  activations: (logarithm of a run's states as computed, weight), whose sum over
    the runs, each faded by how far a candidate's states are from it, is the logarithm of the factor on activations.
    peaks: logarithms of the states of runs whose peak was measured; far from them the common factor is as uncertain as
    without any.  weights: of the grid.  ran: runs that ran, corrected.  runs: everything that it was made from.
    """

    states: float = 1.0
    activations: tuple[tuple[float, float], ...] = ()
    peaks: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    ran: tuple[MemoryUse, ...] = ()
    runs: tuple[MemoryRun, ...] = ()

    @property
    def has_peak(self) -> bool:
        return bool(self.peaks)

    def with_runs(self, more: Sequence[MemoryRun]) -> MemoryPosterior:
        """Return the posterior from these runs too."""
        return memory_posterior((*self.runs, *more)) if more else self

    def corrected(self, used: MemoryUse) -> MemoryUse:
        """Return computed memory as the measured peak, or the mere fact that a run ran, corrects it."""
        if self.states == 1.0 and not self.activations:
            return used
        places, weights = np.array(self.activations).reshape(-1, 2).T
        factor = np.exp(_faded(_states(used)[..., None], places) @ weights)
        return replace(
            used,
            **{part: getattr(used, part) * self.states for part in _STATES},
            **{part: getattr(used, part) * factor for part in _ACTIVATIONS},
        )

    def fits(self, used: MemoryUse) -> np.ndarray:
        """Return True where corrected memory `used` is within the capacity, or no larger than a run that ran in it."""
        return np.asarray(used.fits | self._no_larger(used))

    def probability_fits(self, used: MemoryUse) -> Floats:
        """Return the probability that corrected memory `used` suffices; 1 where it is that of a run that ran."""
        logs = _log_fits(used, self.peaks)
        alone = np.exp(logs)
        chance = alone
        for run in self.ran:
            # What errs as the run did fits wherever the run did; what is unlike it has an error of its own.
            alike = np.exp(-_apart(used, run) / ALIKE_WITHIN)[..., None]
            given_run = np.exp(np.minimum(0.0, logs - _log_fits(run, self.peaks)))
            chance = np.maximum(chance, alike * given_run + (1.0 - alike) * alone)
        return np.asarray(chance @ (np.array(self.weights) if self.weights else _prior()))

    def _no_larger(self, used: MemoryUse) -> np.ndarray:
        smaller = np.zeros(np.shape(used.total), dtype=bool)
        for run in self.ran:
            # To a rounding error: the run itself is no larger than it is.
            states = _states(used) <= 1.000001 * _states(run)
            # Fewer states for more activations is another matter: those are what the model may be wrong about.
            rest = used.needed - _states(used) <= 1.000001 * (run.needed - _states(run))
            room = used.capacity >= 0.999999 * run.capacity  # another chip may have less of it
            smaller = smaller | (states & rest & room)
        return smaller


def memory_posterior(runs: Sequence[MemoryRun]) -> MemoryPosterior:
    """Return the posterior from the runs of one workload; without any, the model alone."""
    if not runs:
        return MemoryPosterior()
    plain = _factors(runs)
    peaks = tuple(float(np.log(_states(plain.corrected(run.used))[0])) for run in runs if run.peak_bytes)
    plain = replace(plain, peaks=peaks)
    ran = tuple(plain.corrected(run.used) for run in runs if run.ran_out == 0.0)
    log_weight = np.log(_prior())
    for run in runs:
        if run.ran_out is None:  # what failed for no known cause says nothing
            continue
        log_fits = np.minimum(_log_fits(plain.corrected(run.used), peaks)[0], -1e-12)
        log_short = np.log(-np.expm1(log_fits))
        log_weight = log_weight + (1.0 - run.ran_out) * log_fits + run.ran_out * log_short
    weight = np.exp(log_weight - log_weight.max())
    return replace(plain, weights=tuple(weight / weight.sum()), ran=ran, runs=tuple(runs))


def _factors(runs: Sequence[MemoryRun]) -> MemoryPosterior:
    """Return the factors that give every peak measured, or make every completed run fit."""
    measured = [run for run in runs if run.peak_bytes]
    told: list[tuple[float, float, float]] = []  # logarithms of both factors, and of the states as computed
    for run in measured or [run for run in runs if run.ran_out == 0.0]:
        states, total = float(_states(run.used)[0]), float(run.used.total[0])
        capacity, at = float(run.used.capacity[0]), float(np.log(states))
        peak = float(run.peak_bytes) if run.peak_bytes else min(total, capacity)
        if peak == total or (not run.peak_bytes and total > IMPLAUSIBLE * capacity):
            continue
        beyond = peak - states
        if beyond > LEAST_ACTIVATIONS * peak:
            told.append((0.0, float(np.log(beyond / run.used.activations[0])), at))
        else:  # not even the states fit into it: some are offloaded, or kept in fewer bits
            told.append((float(np.log(peak / total)), float(np.log(peak / total)), at))
    if not told:
        return MemoryPosterior()
    if not measured:  # the run that is hardest to believe
        told = [min(told, key=lambda each: each[1])]
    states_log, logs, places = (np.array(each) for each in zip(*told, strict=True))
    common = _faded(np.exp(places), places[:, None]) + OWN_SHARE * (len(told) > 1) * np.eye(len(told))
    weights = np.linalg.solve(common, logs)
    pairs = tuple(zip(places.tolist(), weights.tolist(), strict=True))
    return MemoryPosterior(float(np.exp(states_log.mean())), pairs)


def _faded(states: Floats, at: npt.ArrayLike) -> Floats:
    """Return the share (0–1) of the evidence of runs with states of these logarithms that holds for `states`."""
    return np.asarray(np.exp(-np.abs(np.log(np.maximum(states, 1.0)) - at) / FADES_OVER))


def _prior() -> Floats:
    weight = np.exp(-0.5 * _GRID**2)
    return np.asarray(weight / weight.sum())


def _states(used: MemoryUse) -> Floats:
    return used.params + used.optimizer + used.gradients


def _apart(used: MemoryUse, run: MemoryUse) -> Floats:
    """Return how far one memory is from another: change of its states and of the rest, as logarithms."""
    states, others = _states(used), _states(run)
    rest = np.log(np.maximum(used.needed - states, 1.0) / np.maximum(run.needed - others, 1.0))
    return np.abs(np.log(np.maximum(states, 1.0) / np.maximum(others, 1.0))) + np.abs(rest)


def _log_fits(used: MemoryUse, peaks: Sequence[float]) -> Floats:
    """Return the logarithm of the probability that memory suffices by the common factor: (candidates, grid).

    peaks: as of `MemoryPosterior`.
    """
    own = used.crash_spread * np.sqrt(1.0 - COMMON)
    # Activations are part of what is needed, so that a factor on them moves it less than in proportion.
    near = _faded(_states(used)[..., None], np.array(peaks)).max(axis=-1) if peaks else np.zeros(1)
    unknown = 1.4 * used.crash_spread * np.sqrt(COMMON)
    common = np.hypot(near * PEAK_SPREAD, np.sqrt(1.0 - near**2) * unknown)
    shape = np.broadcast_shapes(*(np.shape(value) for value in (used.needed, used.capacity, used.crash_spread)))
    states, needed, capacity, own, common = (
        np.broadcast_to(value, shape)[..., None] for value in (_states(used), used.needed, used.capacity, own, common)
    )
    moved = states + (needed - states) * np.exp(common * _GRID)
    return np.asarray(special("log_ndtr", np.log(capacity / moved) / own))
