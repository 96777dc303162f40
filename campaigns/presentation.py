"""Contents of the page of a campaign: rows, points of its charts, and the importance of each parameter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import Any

import numpy as np
from django.utils import timezone

from campaigns.models import Campaign, Trial, TrialStatus
from campaigns.services.planning import SENTENCE, cost_of
from proposals.failures.stored import FAILURE

#: Trials of a page of the table; points of a chart: of more trials every improvement and a sample of the others.
PAGE, MOST_POINTS = 100, 400
#: Trials that ran from which parameters are compared.
LEAST_RAN = 5


def overview(campaign: Campaign, trials: Sequence[Trial]) -> dict[str, Any]:
    """Return the numbers of the head.  speedup: of the best over the current configuration; cost: dollars, None without
    a price."""
    ran = [trial for trial in trials if trial.status == TrialStatus.DONE]
    best = min(ran, key=lambda trial: trial.step_time_s or 0.0, default=None)
    first_s = next((trial.step_time_s for trial in trials if trial.number == 0), None)
    now = timezone.now()
    busy = sum(trial.ran_s + trial.running_s(now) for trial in trials)
    count = Counter(trial.status for trial in trials)
    return {
        "total": sum(trial.number > 0 for trial in trials),
        "failed": count[TrialStatus.FAILED],
        "waiting": count[TrialStatus.WAITING] + count[TrialStatus.PAUSED],
        "running": count[TrialStatus.RUNNING] + count[TrialStatus.LAUNCHED],
        "best": best,
        "speedup": first_s / best.step_time_s if first_s and best and best.step_time_s else None,
        "busy_s": busy,
        "cost": None if campaign.dollars_per_chip_hour is None else cost_of(campaign, busy),
    }


#: Where the peak memory of trials comes from, and by what.
_MEMORY = {
    Campaign.Backend.MODELLED: ("predicted", "by the memory model"),
    Campaign.Backend.COMPILED: ("computed", "by the compiler"),
}


def memory_of(campaign: Campaign) -> dict[str, str]:
    origin, how = _MEMORY.get(Campaign.Backend(campaign.backend), ("measured", ""))
    return {"origin": origin, "how": how}


def row(trial: Trial, names: Sequence[str]) -> tuple[Trial, str, str, list[str]]:
    """A trial in the table: why it was chosen, why it failed, and its values of the parameters."""
    values = [shown(trial.parameter(name)) for name in names]
    return trial, stored_sentence(trial.why), cause_words(trial.failure), values


def stored_sentence(value: Any) -> str:
    """A stored sentence with its values."""
    return SENTENCE.validate_python(value)


def cause_words(failure: Mapping[str, Any] | None) -> str:
    return FAILURE.read(failure).words if failure else ""


def plotted(campaign: Campaign, trials: Sequence[Trial]) -> dict[str, Any] | None:
    """Return what the charts draw (static/js/campaigns.js); None before any trial ran.

    points: number, state, step time, predicted step time with the ends of its interval, cause of a failure, and values
    of `names`, parameters that differ between trials that ran, whose values are in `values`.  inside, checked: of how
    many measured step times that were predicted the interval held.
    """
    drawn = [trial for trial in trials if trial.status != TrialStatus.CANCELLED]
    ran = [trial for trial in drawn if trial.step_time_s]
    if not ran:
        return None
    varying = varying_parameters(ran)
    bests = accumulate((trial.step_time_s or inf for trial in drawn), min)
    every = -(-len(drawn) // MOST_POINTS)
    shown_trials = [
        trial
        for place, (trial, best) in enumerate(zip(drawn, bests, strict=True))
        if place % every == 0 or trial.step_time_s == best
    ]
    checked = [t for t in ran if not t.modelled and t.predicted_low_s and t.predicted_high_s]
    held = [t for t in checked if (t.predicted_low_s or inf) <= (t.step_time_s or 0.0) <= (t.predicted_high_s or 0.0)]
    return {
        "points": [
            [
                trial.number, trial.status, trial.step_time_s, trial.predicted_step_time_s, trial.predicted_low_s,
                trial.predicted_high_s, cause_words(trial.failure), [shown(trial.parameter(name)) for name in varying],
            ]
            for trial in shown_trials
        ],
        "names": [name.replace("_", " ") for name in varying],
        "values": [[shown(value) for value in values] for values in varying.values()],
        "expert": campaign.expert_step_time_s,
        "modelled": all(trial.modelled for trial in ran),
        "total": len(drawn),
        "inside": len(held),
        "checked": len(checked),
    }  # fmt: skip


def varying_parameters(trials: Sequence[Trial]) -> dict[str, list[Any]]:
    """Parameters that take more than one value, with these in order."""
    seen: dict[str, dict[Any, None]] = {}
    names = dict.fromkeys(name for trial in trials for name in trial.parameters)
    for trial in trials:
        for name in names:
            seen.setdefault(name, {})[_hashed(trial.parameter(name))] = None
    return {name: sorted(values, key=_order) for name, values in seen.items() if len(values) > 1}


def _hashed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _order(value: Any) -> tuple[int, Any]:
    return (0, value) if isinstance(value, int | float) else (1, str(value))


def shown(value: Any) -> str:
    """A parameter's value in a table."""
    if isinstance(value, tuple | list):
        return f"{len(value)} flags" if value else "none"
    return "–" if value is None else str(value)


def importance(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return the parameters, those that matter most first; empty where too few trials ran.

    share: of the variance of log step time that lies between a parameter's values, of which there are `values`; best:
    that of the fastest.  Others vary at the same time, so that shares overlap and do not add up.
    """
    ran = [trial for trial in trials if trial.step_time_s]
    if len(ran) < LEAST_RAN:
        return []
    times = np.log([trial.step_time_s or 1.0 for trial in ran])
    whole = float(((times - times.mean()) ** 2).sum())
    best = ran[int(np.argmin(times))]
    rows = []
    for name, values in varying_parameters(ran).items():
        own = [_hashed(trial.parameter(name)) for trial in ran]
        groups = [times[[value == each for each in own]] for value in values]
        between = sum(len(group) * float(group.mean() - times.mean()) ** 2 for group in groups)
        share = between / whole if whole > 0 else 0.0
        rows.append({"name": name, "share": share, "best": shown(best.parameter(name)), "values": len(values)})
    return sorted(rows, key=lambda row: -row["share"])


def differences(one: Trial, other: Trial) -> list[tuple[str, str, str]]:
    """(parameter, value in one, value in the other) where they differ."""
    names = dict.fromkeys((*one.parameters, *other.parameters))
    rows = [(name, shown(one.parameter(name)), shown(other.parameter(name))) for name in names]
    return [row for row in rows if row[1] != row[2]]
