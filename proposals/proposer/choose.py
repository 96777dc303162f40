"""Three proposals out of the ranking: a recommendation, a safer step, a bolder or different hypothesis."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from diagnosis.report import Diagnosis
from experiments.step_profile import StepProfile
from perfmodel import legality
from perfmodel.chips import get_chip
from perfmodel.config import ExperimentConfig
from perfmodel.step_time import predict
from proposals.proposer.pricing import Prices
from proposals.proposer.ranking import Ranked
from proposals.proposer.space import Meshes

#: Verdicts that no mesh answers.
OFF_CHIP = ("input", "host", "idle")
#: Below this expected gain the best legal mesh is not worth a change, where model, batch and length are known.
WORTH_A_CHANGE = 0.01
#: What a mesh must gain to come first where the chips wait for something else: the cause is worth mending before it.
WORTH_BEFORE_THE_CAUSE = 0.1
#: Share of exposed communication from which schedule flags are worth a trial.
WORTH_HIDING = 0.02

#: Flags that let XLA run collectives beside compute, per kind of chip.  Names: openxla/xla debug_options and the
#: flags that published MaxText recipes set (tpu-recipes, Apache-2.0).
SCHEDULE_FLAGS = {
    "tpu": (
        "--xla_tpu_enable_async_collective_fusion=true",
        "--xla_tpu_enable_async_collective_fusion_fuse_all_gather=true",
        "--xla_tpu_overlap_compute_collective_tc=true",
        "--xla_enable_async_all_gather=true",
    ),
    "gpu": ("--xla_gpu_enable_latency_hiding_scheduler=true", "--xla_gpu_enable_pipelined_all_gather=true"),
}


@dataclass(frozen=True)
class Choice:
    """One of the three: a row of the meshes, and training keys that change.

    exposed_s: communication per step that schedule flags may hide.
    """

    kind: str
    row: int
    changes: dict[str, Any] = field(default_factory=dict)
    exposed_s: float = 0.0


def choose(
    meshes: Meshes, prices: Prices, ranked: Ranked, config: ExperimentConfig, profile: StepProfile, diagnosis: Diagnosis
) -> tuple[Choice, Choice, Choice]:
    """Always three, all distinct; the first is the recommendation.

    To keep the mesh comes first where the chips are not what limits the step and no mesh is likely to gain much all the
    same, or where nothing is gained.  Never repeats a mesh unless its training keys differ.
    """
    base = meshes.baseline
    order = [int(i) for i in np.argsort(-ranked.utility, kind="stable") if i != base]
    keep = Choice("keep", base)
    hide = _hide(meshes, config, profile, diagnosis)
    known = prices.memory is not None
    lighter = _lighter(meshes, order[0] if order else base, config) if known else None
    off_chip = diagnosis.bottleneck.primary in OFF_CHIP and keeping_is_right(ranked, base, diagnosis) >= 0.5
    if not order:
        return _three([keep, *([hide] if hide else [])], meshes, ranked, config)
    settled = known and float(np.max(prices.gain[order])) < WORTH_A_CHANGE
    unlikely = ranked.utility[order[0]] < 0.0 and ranked.faster[order[0]] < 0.5
    if off_chip or settled or unlikely:
        stay = _lighter(meshes, base, config) if known else None
        better = [c for c in (stay, hide) if c is not None]
        first = keep if off_chip or not better else replace(better[0], kind="recommendation")
        return _three([first, keep, *better, _bolder(meshes, ranked, order, set())], meshes, ranked, config)
    first = Choice("recommendation", order[0])
    used = {order[0]}
    safer = _safer(meshes, ranked, order, hide, keep)
    used.add(safer.row)
    bolder = lighter if lighter is not None else _bolder(meshes, ranked, order, used)
    return _three([first, safer, bolder], meshes, ranked, config)


def keeping_is_right(ranked: Ranked, baseline: int, diagnosis: Diagnosis) -> float:
    """Probability that no legal mesh gains what would be worth the change."""
    worth = WORTH_BEFORE_THE_CAUSE if diagnosis.bottleneck.primary in OFF_CHIP else WORTH_A_CHANGE
    better = ranked.runs * ndtr((ranked.gain - worth) / np.maximum(ranked.sigma, 1e-9))
    others = np.delete(better, baseline)
    return 1.0 - float(others.max()) if len(others) else 1.0


def _safer(meshes: Meshes, ranked: Ranked, order: list[int], hide: Choice | None, keep: Choice) -> Choice:
    """Less far from what ran than the recommendation: a shorter step the same way, the schedule alone, or no change."""
    distance, split = meshes.doublings(), ranked.faster
    first = order[0]
    nearer = [i for i in order[1:] if distance[i] < distance[first] and split[i] > 0.5]
    if nearer:
        return Choice("safer", nearer[0])
    if hide is not None:
        return hide
    sure = [i for i in order[1:] if distance[i] <= distance[first] and ranked.runs[i] >= ranked.runs[first]]
    sure = [i for i in sure if split[i] > 0.5]
    return Choice("safer", sure[0]) if sure else keep


def _bolder(meshes: Meshes, ranked: Ranked, order: list[int], used: set[int]) -> Choice:
    """The most to win if the model errs on the cautious side, moving the axes another way than the first does."""
    sizes, base = meshes.space.sizes, meshes.baseline
    first = np.log2(sizes[order[0]] / sizes[base])
    best, best_score = None, -np.inf
    open_rows = [i for i in order[:200] if i not in used]
    promising = [i for i in open_rows if ranked.faster[i] >= 0.5]
    for i in promising or open_rows[:1]:
        move = np.log2(sizes[i] / sizes[base])
        alike = float(move @ first / max(np.linalg.norm(move) * np.linalg.norm(first), 1e-9))
        score = ranked.runs[i] * (ranked.gain[i] + 0.5 * ranked.sigma[i]) - 0.05 * max(alike, 0.0)
        score -= 0.02 * meshes.axes_moved()[i]
        if score > best_score:
            best, best_score = i, score
    if best is None:
        return Choice("keep", base)
    return Choice("bolder" if promising else "alternative", best)


def _lighter(meshes: Meshes, row: int, config: ExperimentConfig) -> Choice | None:
    """The mesh of a row with the rematerialisation policy that recomputes least and still fits."""
    if config.training.remat != "full":
        return None
    for policy in ("none", "minimal"):
        training = replace(config.training, remat=policy)
        candidate = replace(config, mesh=meshes.mesh(row), training=training)
        if not legality.check(candidate):
            return Choice("bolder", row, {"remat": policy})
    return None


def _hide(meshes: Meshes, config: ExperimentConfig, profile: StepProfile, diagnosis: Diagnosis) -> Choice | None:
    """The mesh that ran with a schedule that hides collectives, where they are exposed and the flags are not set."""
    if profile.device.chip is None:
        return None  # on a CPU, or a device we do not know, these flags mean nothing
    exposed = diagnosis.kpis.get("communication_exposed") or diagnosis.kpis.get("communication") or 0.0
    kind = get_chip(config.hardware.chip).kind
    flags = config.training.xla_flags
    set_already = {flag.split("=")[0] for flag in flags}
    new = tuple(flag for flag in SCHEDULE_FLAGS[kind] if flag.split("=")[0] not in set_already)
    if exposed < WORTH_HIDING or not new or not profile.step_time_s:
        return None
    return Choice("safer", meshes.baseline, {"xla_flags": [*flags, *new]}, exposed * profile.step_time_s)


def _lighter_on_memory(meshes: Meshes, config: ExperimentConfig) -> list[Choice]:
    """The mesh that ran with other training keys, those first that fit, or need no more memory than what ran."""
    training = config.training
    keys: list[dict[str, Any]] = [{"remat": name} for name in ("full", "offload", "minimal") if name != training.remat]
    twice = 2 * training.grad_accum
    groups = config.mesh.size("replica", "data", "fsdp", "expert")
    if training.global_batch and not training.micro_batch and training.global_batch % (twice * groups) == 0:
        keys.append({"grad_accum": twice})
    ran = _overflow_bytes(config)
    used = [_overflow_bytes(replace(config, training=replace(training, **changes))) for changes in keys]
    order = sorted(range(len(keys)), key=lambda i: (max(0.0, used[i] - ran), i))
    return [Choice("alternative", meshes.baseline, keys[i]) for i in order]


def _overflow_bytes(config: ExperimentConfig) -> float:
    """Memory per chip where it is more than a chip has; 0 where it fits, or too little is known to tell."""
    found = predict(config)
    return float((found.hbm_per_chip_bytes or {}).get("total") or 0.0) if found.fits is False else 0.0


def _three(
    wanted: list[Choice], meshes: Meshes, ranked: Ranked, config: ExperimentConfig
) -> tuple[Choice, Choice, Choice]:
    """Drop repeats and fill up: with meshes by utility, then to keep what runs, then with other training keys."""
    chosen: list[Choice] = []
    seen: set[tuple[int, str]] = set()
    rows = [int(i) for i in np.argsort(-ranked.utility, kind="stable") if i != meshes.baseline]
    spare = [Choice("bolder" if ranked.faster[i] >= 0.5 else "alternative", i) for i in rows]
    spare += [Choice("keep", meshes.baseline), *_lighter_on_memory(meshes, config)]
    for choice in (*wanted, *(s for s in spare if ranked.utility[s.row] > -0.5), *spare):
        key = (choice.row, repr(sorted(choice.changes.items())))
        if key not in seen and len(chosen) < 3:
            seen.add(key)
            chosen.append(choice)
    return chosen[0], chosen[1], chosen[2]
