"""Why a trial was chosen, in a sentence of words and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from campaigns.engine.candidates import PARTS, Candidates
from campaigns.engine.pool import Trial
from campaigns.engine.posteriors import CandidatePosterior
from campaigns.engine.space import parameters_of
from experiments.sentences import Sentence, Value, join, say
from perfmodel.config import ExperimentConfig

#: Changes that a sentence names; of more it says how many.
NAMED = 4
#: From which chance not to run a sentence mentions it.
WORTH_SAYING = 0.1
#: Share of the step from which a part is worth naming.
LEAST_SAVED = 0.005
_PARTS = {
    "compute": "matmuls", "hbm": "exposed HBM traffic", "tensor": "communication inside a layer",
    "weights": "gradients and weights in communication", "pipeline": "the pipeline", "overhead": "overhead",
}  # fmt: skip
_NAMES = {"grad_accum": "gradient accumulation", "xla_flags": "XLA flags"}


class Chosen(Protocol):
    """What is said of a choice; see `loop.Choice`."""

    @property
    def candidate(self) -> int: ...
    @property
    def step_time_s(self) -> float: ...
    @property
    def gain(self) -> float | None: ...
    @property
    def faster(self) -> float | None: ...
    @property
    def runs(self) -> float: ...


def reason(
    c: Candidates, belief: CandidatePosterior, best: Trial | None, choice: Chosen, largest: bool = True
) -> Sentence:
    """What it changes of the best so far, what that is expected to bring, and where from.

    largest: whether no other candidate promises more.
    """
    row = choice.candidate
    predicted = Value("predicted step time", choice.step_time_s, "s", "predicted")
    if best is None or choice.gain is None:
        which = "the fastest by the performance model" if largest else "predicted"
        spoken = [say(f"Nothing has run yet: {which}, {{}} per step.", predicted)]
    else:
        changed = join(", ", list(_named(changes(c.configs[best.candidate], c.configs[row]))))
        spoken = [
            say(
                "{}: {} per step predicted against {} of the best so far, faster with a probability of {}; expected "
                f"improvement {{}}{', the largest of all candidates' if largest else ''}.",
                changed,
                predicted,
                Value("best so far", best.step_time_s, "s", best.origin),
                Value("probability of being faster", choice.faster, "probability", "predicted"),
                Value("expected improvement", choice.gain, "share", "predicted"),
            )
        ]
        if (moved := _moved(c, best.candidate, row)) is not None:
            spoken.append(moved)
    if choice.runs < 1.0 - WORTH_SAYING:
        cause = "runs out of memory" if belief.fits[row] < 1.0 - WORTH_SAYING else "fails as its neighbours did"
        spoken.append(
            say(
                "It {} with a probability of {}.",
                cause,
                Value("failure", 1.0 - choice.runs, "probability", "predicted"),
            )
        )
    learnt = float(np.exp(belief.mean[row] - c.log_s[row]) - 1.0)
    if abs(learnt) >= 0.02:
        word = "slower" if learnt > 0 else "faster"
        text = "Similar trials were {} {} than the performance model predicts, which is taken into account."
        spoken.append(say(text, Value("learnt correction", abs(learnt), "share", "computed"), word))
    return join(" ", spoken)


def _moved(c: Candidates, before: int, after: int) -> Sentence | None:
    """The part of the step that the change saves most of."""
    saved = c.shares[before] * c.time_s[before] - c.shares[after] * c.time_s[after]
    most = int(np.argmax(saved))
    if saved[most] < LEAST_SAVED * c.time_s[after]:
        return None
    text = "Most of it comes from {}, {} less per step."
    return say(text, _PARTS[PARTS[most]], Value(_PARTS[PARTS[most]], float(saved[most]), "s", "predicted"))


def changes(before: ExperimentConfig, after: ExperimentConfig) -> dict[str, tuple[Any, Any]]:
    """What differs between two trials: parameter, then its value in each; an axis that is absent has size 1."""
    one, other = parameters_of(before), parameters_of(after)
    roles = {axis for axis, _ in (*before.mesh.ici, *after.mesh.ici)}
    changed = {}
    for name in dict.fromkeys((*one, *other)):
        nothing = 1 if name in roles or name.startswith("dcn.") else None
        old, new = one.get(name, nothing), other.get(name, nothing)
        if old != new:
            changed[name] = (old, new)
    return changed


def _named(changed: dict[str, tuple[Any, Any]]) -> Iterator[str]:
    items = list(changed.items())
    for name, (old, new) in items[:NAMED]:
        shown = _NAMES.get(name, name.replace("_", " "))
        if name == "xla_flags":
            yield f"{len(new) - len(old):+d} {shown}"
        else:
            yield f"{shown} {old} → {new}"
    if len(items) > NAMED:
        yield f"{len(items) - NAMED} more"
    if not items:
        yield "The same configuration again"
