"""Three proposals out of the ranking: the best candidate as simple as it may be, a safer one, another hypothesis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from diagnosis.report import Diagnosis
from perfmodel.config import ConfigError
from perfmodel.step_time import Z80, missing_facts
from proposals.proposer.changes import Change
from proposals.proposer.confidence import claimed
from proposals.proposer.pricing import Prices
from proposals.proposer.ranking import Ranked, Weights, shipped_weights, steps
from proposals.proposer.space import CHANGE_KINDS, Candidates
from proposals.proposer.verdict import OFF_CHIP, Asked, asked_by

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Below this expected gain the best legal candidate is not worth a change, where model, batch and length are known.
WORTH_A_CHANGE = 0.01
#: What a mesh must gain to come first where the chips wait for something else: the cause is worth mending before it.
WORTH_BEFORE_THE_CAUSE = 0.1
#: Two moves whose directions differ by less than this cosine are one hypothesis.
SAME_WAY = 0.8
#: Meshes on which every combination of training keys is tried: the best ones, beside those one step away.
BEAM = 32
#: What the verdict asks for is proposed unless it is less likely than this to gain.
LEAST_LIKELY = 0.3


@dataclass(frozen=True)
class Choice:
    """One of the three: a candidate, and what it is proposed as."""

    kind: str
    index: int


def choose(
    candidates: Candidates,
    prices: Prices,
    ranked: Ranked,
    diagnosis: Diagnosis,
    keep_is_asked_away: bool = False,
    weights: Weights | None = None,
) -> tuple[Choice, Choice, Choice]:
    """Always three, all distinct; the first is the recommendation: the largest utility among what is more likely than
    not to gain, without the parts that add next to nothing to it.

    To keep what runs comes first where the chips are not what limits the step and no mesh is likely to gain much all
    the same, or where nothing is gained.  A batch is never changed first, unless nothing else is left.  One of the
    three gives what the verdict asks for, where anything legal does that may gain (`left_out` says why not).
    keep_is_asked_away: what runs breaks a constraint, so that it stands last if at all.  Raises ConfigError where the
    constraints leave fewer than three.
    """
    c, base = candidates, candidates.baseline
    share = (weights or shipped_weights()).simplify
    flags = c.changes_kind("xla_flags")
    order = _order(c, ranked)
    # Schedule flags go with any mesh: they are added to what is chosen, and never decide it.
    plain = order[_priced(c)[order] & ~flags[order]]
    batch = c.changed[:, CHANGE_KINDS.index("global_batch")]
    plain = _or(plain, batch[plain] >= 0)  # a smaller batch is for memory alone
    first = _likely_first(ranked, _or(plain, batch[plain] == 0))
    alone = flags & (steps(c) == 1)
    hide = next((Choice("safer", int(i)) for i in order if alone[i]), None)
    keep = None if keep_is_asked_away else Choice("keep", base)
    asked = asked_by(diagnosis, c, prices)
    if not len(first):
        return _three([x for x in (keep, hide) if x], c, ranked, keep is None)
    off_chip = diagnosis.bottleneck.primary in OFF_CHIP and keeping_is_right(c, ranked, diagnosis) >= 0.5
    settled = not missing_facts(c.config) and float(np.max(prices.gain[first])) < WORTH_A_CHANGE
    best = int(first[0])
    unlikely = ranked.utility[best] < 0.0 and ranked.faster[best] < 0.5
    if keep is not None and (off_chip or settled or unlikely):
        lead = keep if off_chip or hide is None else replace(hide, kind="recommendation")
        wanted = [lead, keep, *([hide] if hide else [])]
    else:
        bare = simplest(c, ranked, best, share)
        lead = Choice("recommendation", _flagged(c, ranked, bare))
        wanted = [lead, *_safer(c, ranked, first, bare, hide)]
    used = [choice.index for choice in wanted]
    another = [*_answer(c, ranked, plain, used, asked), *_another(c, ranked, plain, used, share)]
    # What runs is a yardstick, and goes before what the verdict asks for is left out.
    if keep in wanted[1:] and another and len(wanted) > 2:
        wanted.remove(keep)
    return _three([*wanted[:2], *another, *wanted[2:]], c, ranked, keep is None)


def _flagged(c: Candidates, ranked: Ranked, index: int) -> int:
    """The candidate with schedule flags, where these promise more."""
    rest = _rest(c.change(index))
    alike = np.array([_rest(change) == rest for change in c.changes])
    same = (c.mesh_of == c.mesh_of[index]) & alike[c.change_of] & c.changes_kind("xla_flags")
    rows = np.append(np.flatnonzero(same), index)
    return int(rows[np.argmax(ranked.utility[rows])])


def _rest(change: Change) -> Change:
    return {name: value for name, value in change.items() if name != "xla_flags"}


def _or(rows: Ints, wanted: Bools) -> Ints:
    """The rows that are wanted, or all where none is."""
    return rows[wanted] if wanted.any() else rows


def simplest(c: Candidates, ranked: Ranked, index: int, share: float) -> int:
    """The candidate with the fewest steps on the way from what runs to this one that keeps all but a share of its
    utility: parts of a move or change that add next to nothing are left out."""
    whole = float(ranked.utility[index])
    if whole <= 0.0:
        return index
    moves = np.log2(c.sizes / c.sizes[c.home][None, :])
    goal = moves[c.mesh_of[index]]
    between = ((moves * np.sign(goal) >= 0) & (np.abs(moves) <= np.abs(goal))).all(axis=1)
    aim = c.change(index)
    part = np.array([all(name in aim and aim[name] == value for name, value in change.items()) for change in c.changes])
    open_ = between[c.mesh_of] & part[c.change_of] & (ranked.utility >= (1.0 - share) * whole)
    open_ &= ranked.faster >= min(0.5, ranked.faster[index])
    open_[c.baseline] = False
    rows = np.flatnonzero(open_)
    far = steps(c)[rows]
    fewest = rows[far == far.min()]
    return int(fewest[np.argmax(ranked.utility[fewest])])


def beam(c: Candidates, prices: Prices, ranked: Ranked, diagnosis: Diagnosis) -> Ints:
    """Rows of the meshes worth a closer look: the best by utility, the best that give what the verdict asks for, those
    at most one doubling away, and the one that ran."""
    order = np.argsort(-ranked.utility, kind="stable")
    asked = asked_by(diagnosis, c, prices)
    best = [order] if asked is None else [order, order[asked.given[order]]]
    chosen = [list(dict.fromkeys(c.mesh_of[rows].tolist()))[:BEAM] for rows in best]
    near = np.intersect1d(np.flatnonzero(c.mesh_doublings <= 1.0), c.mesh_of)
    return np.unique(np.concatenate([*chosen, near, [c.home]]).astype(np.int64))


def left_out(
    asked: Asked | None, c: Candidates, ranked: Ranked, diagnosis: Diagnosis, chosen: tuple[Choice, ...]
) -> str | None:
    """Why none of the three gives what the verdict asks for; None where one does, or nothing is asked for."""
    if asked is None:
        if diagnosis.bottleneck.primary in OFF_CHIP:
            return "No mesh or training setting shortens what the chips wait for; fix that first."
        return None
    if asked.given[[choice.index for choice in chosen]].any():
        return None
    rows = np.flatnonzero(asked.given & _priced(c))
    if not len(rows):
        return f"The bottleneck is {asked.part}; no legal configuration that can be priced reduces it."
    best = int(rows[np.argmax(ranked.gain[rows])])
    return (
        f"The bottleneck is {asked.part}; the fastest configuration that reduces it, {c.mesh(best).text()}, is "
        f"predicted at {float(np.exp(ranked.gain[best])):.2f}× per token, so none is proposed."
    )


def in_order(c: Candidates, ranked: Ranked) -> list[int]:
    """All that the model can price, what runs among them, in the order in which they are considered."""
    every = np.argsort(-ranked.utility, kind="stable")
    return [int(i) for i in _likely_first(ranked, every[_priced(c)[every]])]


def _likely_first(ranked: Ranked, order: Ints) -> Ints:
    """The order, led by those that are more likely than not to gain, where some of them are worth a trial."""
    likely = (ranked.faster[order] >= 0.5) & (ranked.utility[order] > 0.0)
    return np.concatenate([order[likely], order[~likely]])


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


def _order(c: Candidates, ranked: Ranked) -> Ints:
    order = np.argsort(-ranked.utility, kind="stable")
    return order[order != c.baseline]


def _priced(c: Candidates) -> Bools:
    """Candidates whose further changes the model can price: all where everything is known."""
    return np.full(len(c), True) if not missing_facts(c.config) else ~c.changes_work()


def _safer(c: Candidates, ranked: Ranked, order: Ints, lead: int, hide: Choice | None) -> Iterator[Choice]:
    """Less far from what ran than the recommendation and no less likely to gain: the best of these by utility; else the
    schedule alone, or the next best."""
    far = steps(c)
    nearer = (far[order] < far[lead]) & (ranked.faster[order] >= max(0.5, ranked.faster[lead]))
    if nearer.any():
        yield Choice("safer", int(order[nearer][0]))
    elif hide is not None:
        yield hide
    else:
        others = order[(order != lead) & (ranked.utility[order] > 0.0)]
        yield from (Choice("alternative", int(i)) for i in others[:1])


def _answer(c: Candidates, ranked: Ranked, order: Ints, used: list[int], asked: Asked | None) -> Iterator[Choice]:
    """The best of what gives what the verdict asks for, where none of the others does."""
    if asked is None or asked.given[used].any():
        return
    given = order[asked.given[order] & (ranked.faster[order] >= LEAST_LIKELY)]
    if len(given):
        yield Choice("alternative", int(given[0]))


def _another(c: Candidates, ranked: Ranked, order: Ints, used: list[int], share: float) -> Iterator[Choice]:
    """The best by utility that moves another way than the others do; called bolder where it may win more than they."""
    rows = order[~np.isin(order, used)]
    if not len(rows):
        return
    promising = rows[ranked.faster[rows] >= 0.5]
    open_ = promising if len(promising) else rows[:1]
    another = (_alike(c, open_, used) < SAME_WAY) & ~_leans_on_the_same(c, open_, used)
    best = int(_or(open_, another)[0])
    best = best if (simple := simplest(c, ranked, best, share)) in used else simple
    hopes = ranked.gain + Z80 * ranked.sigma
    bolder = len(promising) and hopes[best] > max((hopes[i] for i in used), default=0.0)
    yield Choice("bolder" if bolder else "alternative", best)


def _directions(c: Candidates, rows: Ints) -> Floats:
    """Which way each axis and each training key moves: (rows, columns) of -1, 0 and 1."""
    moves = np.sign(np.log2(c.sizes / c.sizes[c.home][None, :]))
    return np.column_stack([moves[c.mesh_of[rows]], np.sign(c.changed[rows])])


def _alike(c: Candidates, rows: Ints, used: list[int]) -> Floats:
    """Largest cosine between the directions in which each row and the candidates used move things, at least 0."""

    def unit(at: Ints) -> Floats:
        whole = _directions(c, at)
        return np.asarray(whole / np.maximum(np.linalg.norm(whole, axis=1, keepdims=True), 1e-9))

    if not used:
        return np.zeros(len(rows))
    return np.asarray(np.maximum(unit(rows) @ unit(np.array(used)).T, 0.0).max(axis=1))


def _leans_on_the_same(c: Candidates, rows: Ints, used: list[int]) -> Bools:
    """Whether a row makes every move that all candidates used have in common, so that it fails when they do."""
    if len(used) < 2:
        return np.zeros(len(rows), dtype=bool)
    theirs = _directions(c, np.array(used))
    common = (theirs == theirs[0]).all(axis=0) & (theirs[0] != 0)
    if not common.any():
        return np.zeros(len(rows), dtype=bool)
    return np.asarray((_directions(c, rows)[:, common] == theirs[0][common]).all(axis=1))


def _three(
    wanted: list[Choice], c: Candidates, ranked: Ranked, keep_is_asked_away: bool
) -> tuple[Choice, Choice, Choice]:
    """Drop repeats and fill up: by utility, what keeps the batch first, and to keep what runs before what is worse."""
    chosen: list[Choice] = []
    seen: set[int] = set()
    order = _order(c, ranked)
    sure = _priced(c)[order] & ~c.changes_kind("global_batch")[order]
    spare = [Choice("bolder" if ranked.faster[i] >= 0.5 else "alternative", int(i)) for i in order[sure][:3]]
    rest = [Choice("alternative", int(i)) for i in order[~sure][:3]]
    near = [s for s in spare if ranked.utility[s.index] > -0.5]
    keep = [Choice("keep", c.baseline)]
    fill = (*near, *rest, *spare, *keep) if keep_is_asked_away else (*near, *keep, *rest, *spare)
    for choice in (*wanted, *fill):
        if choice.index not in seen and len(chosen) < 3:
            seen.add(choice.index)
            chosen.append(choice)
    if len(chosen) < 3:
        raise ConfigError("constraints", f"leave only {len(chosen)} of three configurations; relax one and try again")
    lead, scaled = chosen[0], bool(missing_facts(c.config))
    return lead, _as_it_is(chosen[1], lead, ranked, scaled), _as_it_is(chosen[2], lead, ranked, scaled)


def _as_it_is(choice: Choice, lead: Choice, ranked: Ranked, scaled: bool) -> Choice:
    """The choice, called safer only where it is no less likely to gain than the lead, and bolder only where it is."""
    # As they are printed.
    here, there = (round(100.0 * claimed(float(ranked.faster[each.index]), scaled)) for each in (choice, lead))
    surer = here >= there and lead.kind != "keep"
    untrue = (choice.kind == "safer" and not surer) or (choice.kind == "bolder" and surer)
    return replace(choice, kind="alternative") if untrue else choice
