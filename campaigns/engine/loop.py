"""One iteration of a campaign: the next trials, and whether to go on.

Validation is running the trial, which is the backend's; failure analysis is reading its log (`proposals.failures`).
Both end in the pool, from which the next iteration starts (OptiCo, seed 003, algorithm 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from campaigns.engine.acquisition import ScoredCandidate, look
from campaigns.engine.candidates import TrialCandidates
from campaigns.engine.pool import Pool, Trial
from campaigns.engine.posteriors import VarianceComponents, shipped
from experiments.sentences import Sentence, Value, say

#: A campaign has converged where no candidate is expected to improve on the best by so much, and so many trials
#: in a row have not.
LEAST_GAIN, PATIENCE = 0.005, 3


#: How often what is believed is worked out anew while many trials are chosen at once.
REFRESHED = 8


@dataclass(frozen=True)
class Iteration:
    """What an iteration came to.  choices: empty where the campaign ends, and `ended` says why."""

    held_back: Mapping[str, int]
    choices: tuple[ScoredCandidate, ...]
    ended: Sentence | None = None


def iterate(
    c: TrialCandidates,
    pool: Pool,
    count: int = 1,
    *,
    division: VarianceComponents | None = None,
    least_gain: float = LEAST_GAIN,
    requested: Sequence[int] = (),
) -> Iteration:
    """Up to `count` trials that are worth running at the same time, beside those that still run.

    requested: candidates that somebody asks for; those that the rules let be tried come first, in this order.
    """
    model = division or shipped()
    choices: list[ScoredCandidate] = []
    held_back: Mapping[str, int] | None = None
    ended: Sentence | None = None
    asked = list(dict.fromkeys(requested))
    while len(choices) < count:
        acquisition = look(c, pool, division=model)
        held_back = held_back or acquisition.rules.held_back
        ended = _ended(
            pool, bool(acquisition.rules.rows.any()), acquisition.best, float(acquisition.worth.max()), least_gain
        )
        if ended is not None:
            break
        wanted = [row for row in asked if not acquisition.refused(row)][:count]
        rows = wanted or acquisition.first(min(max(1, count // REFRESHED), count - len(choices)))
        choices.extend(acquisition.choice(row, requested=bool(wanted)) for row in rows)
        pool, asked = pool.with_(*(Trial(row, "running") for row in rows)), []
    return Iteration(held_back or {}, tuple(choices), None if choices else ended)


def _ended(pool: Pool, any_left: bool, best: Trial | None, most: float, least_gain: float) -> Sentence | None:
    if not any_left:
        return Sentence("Every legal candidate has been tried or is known to fail.")
    if best is None or most >= least_gain or since(pool, best) < PATIENCE:
        return None
    text = (
        "Converged: {} trials in a row were no faster, and no candidate left is expected to improve on the best by {} "
        "or more."
    )
    return say(
        text,
        Value("trials since the best", float(since(pool, best)), "count", "computed"),
        Value("least gain", least_gain, "share", "sourced"),
    )


def since(pool: Pool, best: Trial) -> int:
    """Trials begun after the best one, whether they have ended or not."""
    return len(pool) - 1 - next(place for place, trial in enumerate(pool.trials) if trial is best)
