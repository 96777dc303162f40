"""Three proposals out of the ranking: a recommendation, a safer step, a bolder or different hypothesis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from diagnosis.report import Diagnosis
from perfmodel.config import ConfigError
from perfmodel.step_time import Z80, missing_facts
from proposals.proposer.changes import key
from proposals.proposer.confidence import claimed
from proposals.proposer.pricing import Prices
from proposals.proposer.ranking import Ranked
from proposals.proposer.space import CHANGE_KINDS, Candidates

Floats = npt.NDArray[np.float64]

#: Verdicts that no mesh answers.
OFF_CHIP = ("input", "host", "idle")
#: Below this expected gain the best legal candidate is not worth a change, where model, batch and length are known.
WORTH_A_CHANGE = 0.01
#: What a mesh must gain to come first where the chips wait for something else: the cause is worth mending before it.
WORTH_BEFORE_THE_CAUSE = 0.1
#: Candidates, best first, among which a bolder one is looked for.
LOOKED_AT = 2000
#: What a step away from what ran costs a safer proposal beside its utility.
COST_OF_A_STEP = 0.01
#: Two moves whose directions differ by less than this cosine are one hypothesis.
SAME_WAY = 0.8


@dataclass(frozen=True)
class Choice:
    """One of the three: a candidate, and what it is proposed as."""

    kind: str
    index: int


def choose(
    candidates: Candidates, prices: Prices, ranked: Ranked, diagnosis: Diagnosis, keep_is_asked_away: bool = False
) -> tuple[Choice, Choice, Choice]:
    """Always three, all distinct; the first is the recommendation.

    To keep what runs comes first where the chips are not what limits the step and no mesh is likely to gain much all
    the same, or where nothing is gained.  A batch is never changed first, unless nothing else is left.
    keep_is_asked_away: what runs breaks a constraint, so that it stands last if at all.  Raises ConfigError where the
    constraints leave fewer than three.
    """
    c, base = candidates, candidates.baseline
    flags = c.changes_kind("xla_flags")
    order = _order(c, ranked)
    batch = c.changed[:, CHANGE_KINDS.index("global_batch")]
    plain = [i for i in order if not flags[i] and _priced(c)[i]]
    plain = [i for i in plain if batch[i] >= 0] or plain  # a smaller batch is for memory alone
    first = [i for i in plain if batch[i] == 0] or plain
    first = _likely_first(ranked, first)
    hide = next((Choice("safer", i) for i in order if flags[i]), None)
    keep = None if keep_is_asked_away else Choice("keep", base)
    if not first:
        return _three([x for x in (keep, hide) if x], c, ranked, base, keep is None)
    off_chip = diagnosis.bottleneck.primary in OFF_CHIP and keeping_is_right(c, ranked, diagnosis) >= 0.5
    settled = not missing_facts(c.config) and float(np.max(prices.gain[first])) < WORTH_A_CHANGE
    unlikely = ranked.utility[first[0]] < 0.0 and ranked.faster[first[0]] < 0.5
    if keep is not None and (off_chip or settled or unlikely):
        lead = keep if off_chip or hide is None else replace(hide, kind="recommendation")
        wanted = [lead, keep, *([hide] if hide else []), *_bolder(c, ranked, plain, [])]
        return _three(wanted, c, ranked, base, keep is None)
    lead = Choice("recommendation", first[0])
    safer = _safer(c, ranked, first, hide, keep)
    chosen = [lead, *safer]
    return _three([*chosen, *_bolder(c, ranked, plain, [x.index for x in chosen])], c, ranked, base, keep is None)


def in_order(c: Candidates, ranked: Ranked) -> list[int]:
    """All that the model can price, what runs among them, in the order in which they are considered."""
    priced = _priced(c)
    return _likely_first(ranked, [int(i) for i in np.argsort(-ranked.utility, kind="stable") if priced[i]])


def _likely_first(ranked: Ranked, order: list[int]) -> list[int]:
    """The order, led by those that are more likely than not to gain, where some of them are worth a trial."""
    likely = [i for i in order if ranked.faster[i] >= 0.5 and ranked.utility[i] > 0.0]
    return [*likely, *(i for i in order if i not in set(likely))] if likely else order


def keeping_is_right(candidates: Candidates, ranked: Ranked, diagnosis: Diagnosis) -> float:
    """Probability that no legal candidate with the same batch gains what would be worth the change.

    Where the chips wait for something else, what a training key saves on them would only make them wait longer.
    """
    waits = diagnosis.bottleneck.primary in OFF_CHIP
    worth = WORTH_BEFORE_THE_CAUSE if waits else WORTH_A_CHANGE
    better = ranked.runs * ranked.confidence.probability(ranked.gain, ranked.sigma, worth=worth)
    counted = ~candidates.changes_kind("global_batch") & ~candidates.changes_kind("xla_flags")
    counted &= ~(waits & candidates.changes_work())
    counted &= _priced(candidates)
    counted[candidates.baseline] = False
    return 1.0 - float(better[counted].max()) if counted.any() else 1.0


def _order(c: Candidates, ranked: Ranked) -> list[int]:
    return [int(i) for i in np.argsort(-ranked.utility, kind="stable") if i != c.baseline]


def _priced(c: Candidates) -> npt.NDArray[np.bool_]:
    """Candidates whose further changes the model can price: all where everything is known."""
    return np.full(len(c), True) if not missing_facts(c.config) else ~c.changes_work()


def steps(c: Candidates) -> Floats:
    """How far each candidate is from what ran: doublings of axes, and one for each training key that changes."""
    return np.asarray(c.doublings() + (c.changed != 0).sum(axis=1))


def _safer(c: Candidates, ranked: Ranked, order: list[int], hide: Choice | None, keep: Choice | None) -> list[Choice]:
    """Less far from what ran than the recommendation: a shorter step the same way, the schedule alone, or no change."""
    far, first = steps(c), order[0]
    nearer = [i for i in order[1:] if far[i] < far[first] and ranked.faster[i] > 0.5]
    nearer = [i for i in nearer if ranked.faster[i] >= ranked.faster[first]] or nearer
    if nearer:
        return [Choice("safer", max(nearer, key=lambda i: ranked.utility[i] - COST_OF_A_STEP * far[i]))]
    if hide is not None:
        return [hide]
    sure = [i for i in order[1:] if far[i] <= far[first] and ranked.runs[i] >= ranked.runs[first]]
    sure = [i for i in sure if ranked.faster[i] > 0.5]
    if sure:
        return [Choice("safer", sure[0])]
    return [keep] if keep is not None else []


def _bolder(c: Candidates, ranked: Ranked, order: list[int], used: list[int]) -> Iterator[Choice]:
    """The most to win if the model errs on the cautious side, moving another way than the others do."""
    rows = np.array([i for i in order[:LOOKED_AT] if i not in used], dtype=np.int64)
    if not len(rows):
        return
    promising = rows[(ranked.faster[rows] >= 0.5)]
    promising = promising[_sound(c, ranked, promising)]
    open_ = promising if len(promising) else rows[:1]
    score = ranked.runs[open_] * (ranked.gain[open_] + 0.5 * ranked.sigma[open_]) - 0.02 * _moved(c)[open_]
    score -= 0.05 * c.changes_kind("global_batch")[open_]
    alike = _alike(c, open_, used)
    another = (alike < SAME_WAY) & ~_leans_on_the_same(c, open_, used)
    score -= np.where(another, 0.02 * alike, 1.0 if another.any() else 0.05)
    best = int(open_[np.argmax(score)])
    hopes = ranked.gain + Z80 * ranked.sigma
    bolder = len(promising) and hopes[best] > max((hopes[i] for i in used), default=0.0)
    yield Choice("bolder" if bolder else "alternative", best)


def _sound(c: Candidates, ranked: Ranked, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether every part of a candidate is worth it: its mesh, and each training key that it changes."""
    place = np.full((len(c.sizes), len(c.changes)), -1, dtype=np.int64)
    place[c.mesh_of, c.change_of] = np.arange(len(c))
    index = {key(change): number for number, change in enumerate(c.changes)}
    without = [
        [index.get(key({k: v for k, v in change.items() if k != left}), -1) for left in change] for change in c.changes
    ]
    sound = np.ones(len(rows), dtype=bool)
    for number, row in enumerate(rows):
        mesh, change = int(c.mesh_of[row]), int(c.change_of[row])
        parts = [place[mesh, less] for less in without[change] if less >= 0]
        if mesh != c.home and change:
            parts.append(place[c.home, change])
        sound[number] = all(at < 0 or ranked.utility[row] >= ranked.utility[at] for at in parts)
    return sound


def _moved(c: Candidates) -> Floats:
    return np.asarray(c.axes_moved() + (c.changed != 0).sum(axis=1), dtype=np.float64)


def _directions(c: Candidates, rows: npt.NDArray[np.int64]) -> Floats:
    """Which way each axis and each training key moves: (rows, columns) of -1, 0 and 1."""
    moves = np.sign(np.log2(c.sizes / c.sizes[c.home][None, :]))
    return np.column_stack([moves[c.mesh_of[rows]], np.sign(c.changed[rows])])


def _alike(c: Candidates, rows: npt.NDArray[np.int64], used: list[int]) -> Floats:
    """Largest cosine between the directions in which each row and the candidates used move things, at least 0."""

    def unit(at: npt.NDArray[np.int64]) -> Floats:
        whole = _directions(c, at)
        return np.asarray(whole / np.maximum(np.linalg.norm(whole, axis=1, keepdims=True), 1e-9))

    if not used:
        return np.zeros(len(rows))
    return np.asarray(np.maximum(unit(rows) @ unit(np.array(used)).T, 0.0).max(axis=1))


def _leans_on_the_same(c: Candidates, rows: npt.NDArray[np.int64], used: list[int]) -> npt.NDArray[np.bool_]:
    """Whether a row makes every move that all candidates used have in common, so that it fails when they do."""
    if len(used) < 2:
        return np.zeros(len(rows), dtype=bool)
    theirs = _directions(c, np.array(used))
    common = (theirs == theirs[0]).all(axis=0) & (theirs[0] != 0)
    if not common.any():
        return np.zeros(len(rows), dtype=bool)
    return np.asarray((_directions(c, rows)[:, common] == theirs[0][common]).all(axis=1))


def _three(
    wanted: list[Choice], c: Candidates, ranked: Ranked, base: int, keep_is_asked_away: bool
) -> tuple[Choice, Choice, Choice]:
    """Drop repeats and fill up: by utility, what keeps the batch first, and to keep what runs before what is worse."""
    chosen: list[Choice] = []
    seen: set[int] = set()
    order = _order(c, ranked)
    priced, batch = _priced(c), c.changes_kind("global_batch")
    sure = [i for i in order if priced[i] and not batch[i]]
    spare = [Choice("bolder" if ranked.faster[i] >= 0.5 else "alternative", i) for i in sure]
    rest = [Choice("alternative", i) for i in order if not priced[i] or batch[i]]
    near = [s for s in spare if ranked.utility[s.index] > -0.5]
    keep = [Choice("keep", base)]
    fill = (*near, *rest, *spare, *keep) if keep_is_asked_away else (*near, *keep, *rest, *spare)
    for choice in (*wanted, *fill):
        if choice.index not in seen and len(chosen) < 3:
            seen.add(choice.index)
            chosen.append(choice)
    if len(chosen) < 3:
        raise ConfigError("constraints", f"leave only {len(chosen)} of three configurations; give up one and try again")
    lead, scaled = chosen[0], bool(missing_facts(c.config))
    return lead, _as_it_is(chosen[1], lead, ranked, scaled), _as_it_is(chosen[2], lead, ranked, scaled)


def _as_it_is(choice: Choice, lead: Choice, ranked: Ranked, scaled: bool) -> Choice:
    """The choice, called safer only where it is no less likely to gain than the lead, and bolder only where it is."""
    # As they are printed.
    here, there = (round(100.0 * claimed(float(ranked.faster[each.index]), scaled)) for each in (choice, lead))
    surer = here >= there and lead.kind != "keep"
    untrue = (choice.kind == "safer" and not surer) or (choice.kind == "bolder" and surer)
    return replace(choice, kind="alternative") if untrue else choice
