"""The sentences of a proposal: those of sentences.md whose conditions hold, with the facts that they print.

`worded` is where to start.  No sentence has a number that is not in the values beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Formatter
from typing import Any

from experiments.sentences import Sentence, Value, join, say
from experiments.step_profile import MODEL, PROFILE
from formatting import counted, listed
from history.moves import RECOMPUTES
from knowledge.supports import Condition, conditions
from perfmodel.config import ExperimentConfig, Mesh
from perfmodel.workload import chip_of
from proposals.constraints import RULE
from proposals.facts import not_known
from proposals.plan import Memory, Predicted
from proposals.proposer.case import Case
from proposals.proposer.facts import Fact, facts, value_of, yes
from proposals.proposer.observed import Observed
from proposals.proposer.precedents import sizes_by_role

Words = Mapping[str, "Fact | Sentence | Callable[[], Fact]"]

ROLE_NAMES = {
    "data": "data parallelism",
    "replica": "replication",
    "seq": "context parallelism",
    "model": "tensor parallelism",
    "expert": "expert parallelism",
    "pipeline": "pipeline stages",
}
BATCH_SHARDS = "batch shards"
PLURAL = ("pipeline stages", BATCH_SHARDS)
#: How the note begins that says with what a run without a model was priced.
MODEL_UNKNOWN = "The model is unknown:"
#: Training keys with sentences of their own.
PRICED_KEYS = (
    "global_batch", "remat", "weight_sharding", "grad_accum", "micro_batch", "virtual_stages", "xla_flags",
)  # fmt: skip
#: Of all changes of parts, the share that the listed ones may leave out.
UNSAID = 0.1
_BULLET = re.compile(r"(?:(?P<otherwise>else)(?: if (?P<also>[^:]+))?:|if (?P<asked>[^:]+):)? ?(?P<text>.*)")


@dataclass(frozen=True)
class _Bullet:
    """text: said where one of the alternatives holds; otherwise: only where the bullet before it does not."""

    text: str
    alternatives: tuple[tuple[Condition, ...], ...]
    otherwise: bool

    def holds(self, of: Words) -> bool:
        return not self.alternatives or any(
            all(condition.holds(lambda name: value_of(of, name)) for condition in each) for each in self.alternatives
        )


@cache
def sections() -> Mapping[str, tuple[_Bullet, ...]]:
    """The bullets of sentences.md by section."""
    text = files("proposals.proposer").joinpath("sentences.md").read_text("utf-8")
    found = {}
    for section in text.split("\n## ")[1:]:
        name, _, body = section.partition("\n")
        found[name] = tuple(_bullet(" ".join(item.split())) for item in ("\n" + body).split("\n- ")[1:])
    return found


def _bullet(line: str) -> _Bullet:
    match = _BULLET.fullmatch(line)
    assert match is not None, line
    asked = match["also"] or match["asked"]
    return _Bullet(
        match["text"], tuple(map(conditions, asked.split(" or "))) if asked else (), match["otherwise"] is not None
    )


def said(section: str, of: Words) -> Iterator[Sentence]:
    """The sentences of a section whose conditions hold."""
    taken = False
    for bullet in sections()[section]:
        if bullet.otherwise and taken:
            continue
        taken = bullet.holds(of)
        if taken and bullet.text:
            yield _filled(bullet.text, of)


def _filled(text: str, of: Words) -> Sentence:
    spans: list[object] = []
    for words, name, _, _ in Formatter().parse(text):
        spans.append(words)
        if name is not None:
            fact = of[name]
            spans.append(int(fact) if isinstance(fact, float) and fact.is_integer() else fact)
    return Sentence(*spans)


def worded(case: Case) -> Words:
    """The facts of a proposal with what its sentences print besides."""
    return {**facts(case), **_decisions(case), **_moves(case), **_prediction(case), **_history(case), **_flags(case)}


def verdict_words(primary: str) -> str:
    """`communication limits the step`."""
    return str(next(said("Verdict", {"verdict": primary})))


def title(case: Case, of: Words) -> str:
    words = [str(each) for each in said("Title", of)]
    words += [f"{name.replace('_', ' ')} {case.changes[name]}" for name in case.changes if name not in PRICED_KEYS]
    if not case.moved and case.resized:
        sizes = [f"{axis} {before} → {after}" for axis, (before, after) in case.resized.items()]
        return ", ".join([listed(sizes), *words])
    if not case.moved:
        return f"Keep the mesh, {listed(words)}" if words else "Keep the current configuration"
    if case.moved.get("replica", 0.0) > 0 and case.moved.get("data", 0.0) < 0:  # HSDP: the batch is split as before
        moved = [f"{'weights' if _is_fsdp(case.proposed) else 'optimizer state'} replicated over groups of chips"]
    else:
        moved = [f"more {_name(case, role)}" for role, doublings in case.moved.items() if doublings > 0]
        moved += [f"{_fewer(case, role)} {_name(case, role)}" for role, more in case.moved.items() if more < 0]
    text = ", ".join([listed(moved), *words])
    return text[0].upper() + text[1:]


def _fewer(case: Case, role: str) -> str:
    if sizes_by_role(case.mesh).get(role, 1) == 1:
        return "no"
    return "fewer" if _name(case, role) in PLURAL else "less"


def _name(case: Case, role: str) -> str:
    """Return what the axes of a role are called: with fully sharded weights the batch axes shard more than data."""
    return BATCH_SHARDS if role == "data" and _is_fsdp(case.config, case.proposed) else ROLE_NAMES[role]


def _is_fsdp(*configs: ExperimentConfig) -> bool:
    return all(config.training.weight_sharding == "fsdp" for config in configs)


def reasoning(case: Case, of: Words) -> Iterator[Sentence | str]:
    """Yield why: the verdict it answers, then what each move does, with the measured time it bears on."""
    if case.kind == "own":
        yield from (f"Invalid configuration: {item.reason}" for item in case.broken if not item.rule.startswith(RULE))
    yield from said("Reasons", of)
    before, after = sizes_by_role(case.config.mesh), sizes_by_role(case.mesh)
    for role, doublings in sorted(case.moved.items(), key=lambda item: item[1]):
        group = ("data", "fsdp") if role == "data" else (role,)
        across = " over all slices" if case.config.mesh.dcn_size(*group) > 1 else ""
        move = {
            "role": role,
            "direction": "up" if doublings > 0 else "down",
            "Name": (name := _name(case, role))[0].upper() + name[1:],
            "go": "go" if name in PLURAL else "goes",
            "step": f"from {before.get(role, 1)} to {after.get(role, 1)}{across}",
        }
        yield from said("Move", {**of, **move})
    yield from said("Change", of)
    for key, row in case.policy_effects.items():
        names = {"policy_measured": "speedup", "policy_trials": "count", "policy_failed": "count"}
        values = {
            name: Value(
                f"{key} alone: {name.removeprefix('policy_')}", row.get(name.removeprefix("policy_")), unit, "measured",
                field=f"proposal.policies.{key}.{name.removeprefix('policy_')}",
            )
            for name, unit in names.items()
        }  # fmt: skip
        step = f"`{getattr(case.config.training, key)}` → `{case.changes[key]}`"
        yield from said("Policy", {**of, **values, "policy": key.replace("_", " "), "policy_step": step})


def expected_impact(case: Case, of: Words) -> Iterator[Sentence]:
    if case.keeps or case.predicted.speedup is not None:
        yield from said("Unchanged" if case.keeps else "Impact", of)


def trade_offs(case: Case, of: Words) -> Iterator[Sentence | str]:
    yield from said("Costs", of)
    for item in case.broken:
        if item.rule.startswith(RULE) and case.kind != "own":
            yield f"It violates your constraints and is listed only as the current configuration. {item.reason}"
        elif item.rule.startswith(RULE):
            yield item.reason.replace("Your constraint", "It violates your constraint")
    if case.keeps:
        yield "Nothing is risked, and nothing is learnt."


def lowers(case: Case, of: Words) -> Iterator[Sentence | str]:
    yield from case.doubts
    for element, by in case.disputed.items():
        source = "profile" if case.observed.basis == PROFILE else "measured step time"
        field = f"proposal.disputed.{element}"
        seen, alone = (
            Value(f"{element} by the {name}", by[key], "speedup", "predicted", field=f"{field}.{key}")
            for key, name in (("measured", source), ("model", "model alone"))
        )
        named = "The change of the mesh" if element == "mesh" else f"{element} {case.changes[element]}"
        yield from said("Disputed", {**of, "element": named, "seen": seen, "alone": alone})
    yield from case.unchecked
    yield from said("Lowers", of)


# Facts that sentences print or compare, and passages do not


def _decisions(case: Case) -> dict[str, Any]:
    config, changes = case.config, case.changes
    batch, verdict = changes.get("global_batch", config.training.global_batch), case.diagnosis.bottleneck
    bubble = case.mesh.size("pipeline") > 1 and case.falls("idle")
    unpriced = [name for name in changes if name not in PRICED_KEYS]
    return {
        "changes": frozenset(changes),
        "known": _known(case, batch=batch, unpriced=unpriced),
        "runs": Value("probability that it runs", case.runs, "probability", "predicted", field="proposal.runs"),
        "basis": case.observed.basis,
        "rank": float(case.rank),
        "verdict_words": verdict_words(verdict.primary),
        "verdict_confidence": Value(
            "confidence in the bottleneck", verdict.confidence, "probability", field="confidence"
        ),
        "idle_falls": yes(case.falls("idle")),
        "resized": yes(bool(case.resized)),
        "splits": yes(case.splits_anew),
        "rows": case.rows_ratio,
        "shrinks_bubble": " and shrink the pipeline bubble" if bubble else "",
        "matrix_units": "the MXU" if chip_of(config.hardware).kind == "tpu" else "tensor cores",
        "recomputes": float(RECOMPUTES[changes.get("remat", config.training.remat)]),
        "was_recomputes": float(RECOMPUTES[config.training.remat]),
        "sequences": _sequences(batch, case.mesh),
        "sequences_before": _sequences(config.training.global_batch, config.mesh),
        "unpriced": ", ".join(unpriced),
        "stand_in": yes(case.observed.evidence.stand_in),
        "not_known": not_known(case.missing) if case.missing else "",
        "listed": Value(
            "listed ops", case.observed.calibration.observation.coverage, "share", field="plan.observed.listed.share"
        ),
    }


def _known(case: Case, batch: int | None, unpriced: Sequence[str]) -> frozenset[str]:
    """Names of the facts that are there."""
    told = {
        "run": not case.missing,
        "was_global_batch": case.config.training.global_batch,
        "sequences_before": batch and case.config.training.global_batch,
        "step": case.predicted.step_time_s,
        "step_before": case.baseline.step_time_s,
        "memory": case.predicted.hbm_per_chip_bytes,
        "memory_before": case.baseline.hbm_per_chip_bytes,
        "largest": _largest(case),
        "precedent": case.precedent,
        "warning": case.warning,
        "counts_measured": case.counts_measured and not case.keeps,
        "fresh": _fresh(case),
        "unpriced": unpriced,
        "effect": case.effect,
    }
    return frozenset(name for name, fact in told.items() if fact)


def _sequences(batch: int | None, mesh: Mesh) -> str | None:
    return counted(batch / mesh.batch_shards, "sequence") if batch else None


def _fresh(case: Case) -> list[str]:
    """Roles that move and that the run did not have."""
    return [ROLE_NAMES[role] for role in case.moved if sizes_by_role(case.config.mesh).get(role, 1) == 1]


def _moves(case: Case) -> dict[str, Any]:
    observed = case.observed
    return {
        "moves": yes(bool(case.moved)),
        "more": frozenset(role for role, doublings in case.moved.items() if doublings > 0),
        "less": frozenset(role for role, doublings in case.moved.items() if doublings < 0),
        "doublings": Value("doublings", case.doublings, "", field="proposal.doublings"),
        "fresh": " and no ".join(_fresh(case)),
        "tensor_now": _now("tensor", observed, "now"),
        "weights_hbm_now": _now("weights_hbm", observed, "reading weights from HBM now"),
        "sequence_now": _now("sequence", observed, "now"),
    }


def spent(name: str, seconds: float, observed: Observed) -> tuple[Value, Value]:
    """(time per step, share of the step) of one part of the current configuration, as `Plan.observed` has it."""
    origin = "computed" if observed.basis == PROFILE else "predicted"
    words, field = name.replace("_", " "), f"plan.observed.{name}"
    return (
        Value(f"{words} time per step", seconds, "s", origin, field=f"{field}.time_s"),
        Value(f"{words} share of the step", seconds / observed.step_s, "share", origin, field=f"{field}.share"),
    )


def _now(name: str, observed: Observed, when: str) -> Sentence:
    """Return what a part takes now, in parentheses; nothing where it takes next to nothing."""
    time, share = spent(name, observed.parts_s[name], observed)
    if (share.value or 0.0) < 0.001:
        return Sentence()
    if observed.basis != PROFILE:
        return say(" ({} per step predicted)", time)
    return (
        say(" ({} per step {}, {})", time, when, share)
        if observed.timed
        else say(" ({} of device time {})", share, when)
    )


def _prediction(case: Case) -> dict[str, Any]:
    predicted, before = case.predicted, case.baseline
    origin = "predicted" if case.observed.basis == MODEL else "measured"
    words: dict[str, Any] = {"fits": None, "fullness": None, "more_activations": "no", "memory_moves": "yes"}
    words["now"] = origin
    for name, of in (("sequences_per_step", case.proposed), ("was_sequences_per_step", case.config)):
        words[name] = counted(of.training.global_batch or 0, "sequence")
    if before.step_time_s:
        words["step_before"] = Value(
            "step time of the current configuration", before.step_time_s.estimate, "s", origin,
            field="plan.baseline.step_time_s.estimate",
        )  # fmt: skip
    if predicted.step_time_s:
        # Two digits would hide a gain of less than a fifth.
        digits = "predicted" if abs((predicted.speedup or 1.0) - 1.0) > 0.2 else "computed"
        words["step"] = Value(
            "predicted step time", predicted.step_time_s.estimate, "s", digits,
            field="proposal.predicted.step_time_s.estimate",
        )  # fmt: skip
    if predicted.speedup is not None:
        words |= _gain(predicted)
    words["chance"] = Value(
        "chance to be faster", case.probability, "probability", "predicted", field="proposal.confidence"
    )
    memory, old = predicted.hbm_per_chip_bytes, before.hbm_per_chip_bytes
    if old:
        words["memory_before"], _ = memory_of(old, "plan.baseline")
    if memory:
        words["memory"], words["capacity"] = memory_of(memory)
        words["fits"], words["fullness"] = yes(memory.headroom >= 0), memory.total / memory.capacity
        words["memory_moves"] = yes(not old or str(words["memory"]) != str(words["memory_before"]))
        was = (old or memory).activations or 0.0
        words["more_activations"] = yes((memory.activations or 0.0) > 1.02 * was)
    words["largest"] = join("; ", _largest(case))
    return words


def _gain(predicted: Predicted) -> dict[str, Any]:
    def bound(key: str) -> Value:
        """The speed-up per token, or a bound of its interval; where there is none, the speed-up."""
        key = key if getattr(predicted, key) else "speedup"
        field = f"proposal.predicted.{key}"
        return Value("speed-up per token", getattr(predicted, key), "speedup", "predicted", field=field)

    low, high = bound("speedup_low80"), bound("speedup_high80")
    return {
        "gain": bound("speedup"),
        "gain_low": low,
        "gain_high": high,
        "inconclusive": ", inconclusive" if (low.value or 0.0) <= 1.0 <= (high.value or 0.0) else "",
    }


def memory_of(memory: Memory, of: str = "proposal.predicted") -> tuple[Value, Value]:
    """(needed, usable) memory per chip."""
    field = f"{of}.hbm_per_chip_bytes"
    return (
        Value("memory needed per chip", memory.total, "bytes", "predicted", field=f"{field}.total"),
        Value("usable memory per chip", memory.capacity, "bytes", "computed", field=f"{field}.capacity"),
    )


def _largest(case: Case) -> list[Sentence]:
    """The parts that change most, as many as make up most of the change, for the same tokens."""
    sizes = {name: abs(row["after"] - row["before"]) for name, row in case.parts.items()}
    least = 0.002 * sum(row["before"] for row in case.parts.values())
    found: list[Sentence] = []
    left = sum(sizes.values())
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        if sizes[name] <= least or (len(found) >= 3 and left <= UNSAID * sum(sizes.values())):
            break
        found.append(say("{} {} → {}", name, *_before_and_after(name, case.parts[name])))
        left -= sizes[name]
    return found


def _before_and_after(name: str, row: dict[str, float]) -> Iterator[Value | str]:
    """Both with the same digits, more where two would hide the change."""

    def pair(origin: str) -> list[Value]:
        return [Value(name, row[key], "s", origin, field=f"proposal.parts.{name}.{key}") for key in row]

    values = pair("predicted")
    values = pair("computed") if values[0].text == values[1].text else values
    return (value if value.value else "none" for value in values)


def _flags(case: Case) -> dict[str, Any]:
    """Return what was measured of the flags that change."""
    ratios, numbers = ("speedup", "low80", "high80", "measured"), ("trials", "whole", "stacks", "failed")
    words: dict[str, Any] = {f"flags_{name}": 0.0 for name in (*ratios, *numbers)}
    new = set(case.changes.get("xla_flags", ())) - set(case.config.training.xla_flags)
    words["flags_new"] = counted(len(new), "XLA flag")
    if case.effect is not None:
        words |= {
            f"flags_{name}": Value(
                f"{name} of these flags", value, "speedup" if name in ratios else "count",
                "measured" if name == "measured" else "computed", field=f"proposal.flags.{name}",
            )
            for name, value in case.effect.summary.items()
        }  # fmt: skip
    return words


def _history(case: Case) -> dict[str, Any]:
    words: dict[str, Any] = {"precedent_time": None, "failure": ""}
    if case.precedent is not None:
        words |= {
            "precedent_time": case.precedent.time_ratio,
            "precedent_title": case.precedent.record.title,
            "precedent_effect": case.precedent.effect.rstrip("."),
            "precedent_source": case.precedent.record.source,
        }
    if case.warning is not None:
        words |= {
            "failure": case.warning.failure,
            "warning_title": case.warning.record.title.rstrip("."),
            "warning_source": case.warning.record.source,
        }
    return words
