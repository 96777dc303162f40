"""Three proposals out of the ranking: the best candidate as simple as it may be, a safer one, another hypothesis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from diagnosis.report import Diagnosis
from perfmodel.config import ConfigError
from perfmodel.priced import Z80
from perfmodel.step_time import missing_facts
from proposals.proposer.changes import Change
from proposals.proposer.confidence import claimed
from proposals.proposer.pricing import OFF_CHIP, Prices
from proposals.proposer.ranking import Ranked, Weights, shipped_weights, steps
from proposals.proposer.space import CHANGE_KINDS, Candidates
from proposals.proposer.verdict import Asked, asked_by

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: A smaller gain, as a logarithm of time per token, is not worth a change: published repeats differ by as much.
WORTH_A_CHANGE = 0.01
#: Gains below this, as a logarithm, are the model's rounding.
NO_DIFFERENCE = 0.001
#: Two moves whose directions differ by less than this cosine are one hypothesis.
SAME_WAY = 0.8
#: Meshes on which every combination of training keys is tried: the best ones, besides neighbouring ones.
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
    least: int = 3,
    constrained: bool = True,
) -> tuple[Choice, ...]:
    """Three, all distinct; fewer, down to `least`, where the others would change nothing, or where no more are legal.

    The first is the recommendation: the largest utility among what is more likely than not to gain what is worth a
    change, without parts of negligible value; keeping the current configuration if nothing is.  A batch is changed
    first only where nothing at the same batch is that likely to gain.  One of the three gives what the verdict asks
    for, where anything legal does that may gain (`left_out` says why not).  keep_is_asked_away: the current
    configuration breaks a constraint, so it is ranked last if at all.  Raises ConfigError where the constraints
    (constrained: whether there are any) leave fewer than `least`.
    """
    c, base = candidates, candidates.baseline
    share = (weights or shipped_weights()).simplify
    order = _order(c, ranked)
    order = order[offered(c)[order]]
    # Schedule flags go with any mesh: they are added to what is chosen, and never decide it.
    flags = c.changes_kind("xla_flags")
    plain = order[~flags[order]]
    plain = _or(plain, ~_dominated(c, ranked)[plain])
    same, steady = (rows[~c.changes_kind("global_batch")[rows]] for rows in (plain, order))
    alone = order[flags[order] & (steps(c)[order] == 1)]
    hide = Choice("safer", int(alone[0])) if len(alone) else None
    keep = None if keep_is_asked_away else Choice("keep", base)
    likely = ranked.faster_by(WORTH_A_CHANGE) >= 0.5
    fields = (same, alone, steady, plain, order)
    best = next((int(rows[likely[rows]][0]) for rows in fields if likely[rows].any()), None)
    if best is None and keep is None and len(order):
        best = int((same if len(same) else order)[0])
    if best is None:
        wanted = [choice for choice in (keep, hide) if choice]
    elif flags[best]:
        wanted = [Choice("recommendation", best), *([keep] if keep else [])]
    else:
        bare = simplest(c, ranked, best, share)
        lead = Choice("recommendation", _flagged(c, ranked, bare))
        wanted = [lead, *_safer(c, ranked, _likely_first(ranked, _or(plain, np.isin(plain, same))), bare, hide)]
    used = [choice.index for choice in wanted]
    another = [
        *_answer(c, ranked, plain, used, asked_by(diagnosis, c, prices)),
        *_another(c, ranked, plain, used, share),
    ]
    # The current configuration is the reference, and is dropped before what the verdict calls for.
    if keep in wanted[1:] and another and len(wanted) > 2:
        wanted.remove(keep)
    return _three([*wanted[:2], *another, *wanted[2:]], c, ranked, keep is None, least, constrained)


def _flagged(c: Candidates, ranked: Ranked, index: int) -> int:
    """The candidate with schedule flags, where these promise more."""
    rest = _rest(c.change(index))
    alike = np.array([_rest(change) == rest for change in c.changes])
    same = (c.mesh_of == c.mesh_of[index]) & alike[c.change_of] & c.changes_kind("xla_flags")
    rows = np.append(index, np.flatnonzero(same))
    return int(rows[np.argmax(ranked.utility[rows])])


def _rest(change: Change) -> Change:
    return {name: value for name, value in change.items() if name != "xla_flags"}


def _or(rows: Ints, wanted: Bools) -> Ints:
    """The rows that are wanted, or all where none is."""
    return rows[wanted] if wanted.any() else rows


def simplest(c: Candidates, ranked: Ranked, index: int, share: float) -> int:
    """The candidate with the fewest steps on the way from the current configuration to this one that keeps all but a
    share of its utility: parts of a move or change that add next to nothing are left out."""
    whole = float(ranked.utility[index])
    if whole <= 0.0:
        return index
    moves = np.log2(c.sizes / c.sizes[c.home][None, :])
    goal = moves[c.mesh_of[index]]
    between = ((moves * np.sign(goal) >= 0) & (np.abs(moves) <= np.abs(goal))).all(axis=1)
    aim = c.change(index)
    part = np.array([all(name in aim and aim[name] == value for name, value in change.items()) for change in c.changes])
    open_ = between[c.mesh_of] & part[c.change_of] & (ranked.utility >= (1.0 - share) * whole)
    likely = ranked.faster_by(WORTH_A_CHANGE)
    open_ &= likely >= min(0.5, likely[index])
    open_[c.baseline] = False
    rows = np.flatnonzero(open_)
    far = steps(c)[rows]
    fewest = rows[far == far.min()]
    return int(fewest[np.argmax(ranked.utility[fewest])])


def shortlist(c: Candidates, prices: Prices, ranked: Ranked, diagnosis: Diagnosis) -> Ints:
    """Rows of the meshes worth a closer look: the best by utility, the best that give what the verdict asks for, those
    at most one doubling away, and the one that ran."""
    order = np.argsort(-ranked.utility, kind="stable")
    asked = asked_by(diagnosis, c, prices)
    best = [order] if asked is None else [order, order[asked.given[order]]]
    chosen = [list(dict.fromkeys(c.mesh_of[rows].tolist()))[:BEAM] for rows in best]
    near = np.intersect1d(np.flatnonzero(c.mesh_doublings <= 1.0), c.mesh_of)
    return np.unique(np.concatenate([*chosen, near, [c.home]]).astype(np.int64))


def left_out(
    asked: Asked | None,
    c: Candidates,
    prices: Prices,
    ranked: Ranked,
    diagnosis: Diagnosis,
    chosen: tuple[Choice, ...],
) -> str | None:
    """Why none of the three gives what the verdict asks for; None where one does, or nothing is asked for."""
    if asked is None:
        if diagnosis.bottleneck.primary in OFF_CHIP:
            return "No mesh or training setting shortens what the chips wait for; fix that first."
        return None
    if asked.given[[choice.index for choice in chosen]].any():
        return None
    rows = np.flatnonzero(asked.given & offered(c))
    start = f"The bottleneck is {asked.part};"
    if not len(rows):
        return f"{start} no priced legal configuration at this or a larger batch reduces it by at least a tenth."
    best = int(rows[np.argmax(ranked.utility[rows])])
    settings = [f"{name} {value}" for name, value in c.change(best).items() if name != "xla_flags"]
    settings += ["XLA flags"] if "xla_flags" in c.change(best) else []
    which = " with ".join([c.mesh(best).text(), *([", ".join(settings)] if settings else [])])
    if prices.gain[best] < 0:
        why = "is predicted to be slower than the current one"
    elif _dominated(c, ranked)[best]:
        why = "is worse than another at the same batch, which is faster, likelier to be so and needs no more memory"
    else:
        why = "is predicted to gain less than the others"
    return f"{start} the best configuration that reduces it, {which}, {why}, so none is proposed."


def in_order(c: Candidates, ranked: Ranked) -> list[int]:
    """All that the model can price, the current configuration included, in the order in which they are considered."""
    every = np.argsort(-ranked.utility, kind="stable")
    return [int(i) for i in _likely_first(ranked, every[_priced(c)[every]])]


def _likely_first(ranked: Ranked, order: Ints) -> Ints:
    """The order, led by those that are more likely than not to gain, where some of them are worth a trial."""
    likely = (ranked.faster[order] >= 0.5) & (ranked.utility[order] > 0.0)
    return np.concatenate([order[likely], order[~likely]])


def keeping_is_right(candidates: Candidates, ranked: Ranked, chosen: Sequence[Choice] = ()) -> float:
    """Probability that nothing that may be offered, or was chosen, runs and gains what is worth a change."""
    counted = offered(candidates)
    counted[[choice.index for choice in chosen]] = True
    counted[candidates.baseline] = False
    better = ranked.faster_by(WORTH_A_CHANGE)[counted]
    return 1.0 - float(better.max()) if len(better) else 1.0


def offered(c: Candidates) -> Bools:
    """What may be proposed: what the model can price, at the batch that ran or a larger one.  A smaller batch is for
    memory alone: it is offered where nothing else is left."""
    return _priced(c) & (c.changed[:, CHANGE_KINDS.index("global_batch")] >= 0)


def _priced(c: Candidates) -> Bools:
    """Candidates whose further changes the model can price: all where everything is known."""
    return np.full(len(c), True) if not missing_facts(c.config) else ~c.changes_work()


def _dominated(c: Candidates, ranked: Ranked) -> Bools:
    """Whether another that may be offered, at the same batch, is faster, likelier to be so, and needs no more memory;
    another batch must be better, by what is worth a change, than all that keeps the batch.  Nothing is dominated where
    memory cannot be computed."""
    dominated = np.zeros(len(c), dtype=bool)
    if missing_facts(c.config):
        return dominated
    gain, faster, memory, tokens = ranked.gain, ranked.faster, c.used.total, c.tokens_ratio
    pool = np.flatnonzero(offered(c) & ~c.changes_kind("xla_flags"))
    kept: list[int] = []
    for batch in np.unique(tokens[pool]):  # the batch that ran is the smallest
        rows = pool[tokens[pool] == batch]
        front: list[int] = []
        for row in rows[np.argsort(-gain[rows], kind="stable")]:
            beaten = (faster[front] > faster[row]) & (memory[front] <= memory[row])
            as_good = (gain[kept] > gain[row] - WORTH_A_CHANGE) & (faster[kept] > faster[row] - WORTH_A_CHANGE)
            dominated[row] = beaten.any() or (as_good & (memory[kept] <= 1.001 * memory[row])).any()
            if not dominated[row]:
                front.append(int(row))
        kept = kept or front
    return dominated


def _order(c: Candidates, ranked: Ranked) -> Ints:
    order = np.argsort(-ranked.utility, kind="stable")
    return order[order != c.baseline]


def _safer(c: Candidates, ranked: Ranked, order: Ints, lead: int, hide: Choice | None) -> Iterator[Choice]:
    """Nearer to the current configuration than the recommendation and no less likely to gain: the best of these by
    utility; else the schedule alone, or the next best."""
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
    rows = order[~np.isin(order, used) & _differs(ranked)[order]]
    if not len(rows):
        return
    promising = rows[ranked.faster_by(WORTH_A_CHANGE)[rows] >= 0.5]
    open_ = promising if len(promising) else rows[:1]
    another = (_largest_cosine(c, open_, used) < SAME_WAY) & ~_shares_direction(c, open_, used)
    best = int(_or(open_, another)[0])
    best = best if (simple := simplest(c, ranked, best, share)) in used else simple
    hopes = ranked.gain + Z80 * ranked.sigma
    bolder = len(promising) and hopes[best] > max((hopes[i] for i in used), default=0.0)
    yield Choice("bolder" if bolder else "alternative", best)


def _directions(c: Candidates, rows: Ints) -> Floats:
    """Which way each axis and each training key moves: (rows, columns) of -1, 0 and 1."""
    moves = np.sign(np.log2(c.sizes / c.sizes[c.home][None, :]))
    return np.column_stack([moves[c.mesh_of[rows]], np.sign(c.changed[rows])])


def _largest_cosine(c: Candidates, rows: Ints, used: list[int]) -> Floats:
    """Largest cosine between the directions in which each row and the candidates used move things, at least 0."""

    def unit(at: Ints) -> Floats:
        whole = _directions(c, at)
        return np.asarray(whole / np.maximum(np.linalg.norm(whole, axis=1, keepdims=True), 1e-9))

    if not used:
        return np.zeros(len(rows))
    return np.asarray(np.maximum(unit(rows) @ unit(np.array(used)).T, 0.0).max(axis=1))


def _shares_direction(c: Candidates, rows: Ints, used: list[int]) -> Bools:
    """Whether a row makes every move that all candidates used have in common, so that it fails when they do."""
    if len(used) < 2:
        return np.zeros(len(rows), dtype=bool)
    theirs = _directions(c, np.array(used))
    common = (theirs == theirs[0]).all(axis=0) & (theirs[0] != 0)
    if not common.any():
        return np.zeros(len(rows), dtype=bool)
    return np.asarray((_directions(c, rows)[:, common] == theirs[0][common]).all(axis=1))


def _differs(ranked: Ranked) -> Bools:
    """Whether a candidate is expected to take another time at all: an axis renamed from data to FSDP may not."""
    return np.asarray(np.abs(ranked.gain) >= NO_DIFFERENCE)


def _three(
    wanted: list[Choice], c: Candidates, ranked: Ranked, keep_is_asked_away: bool, least: int, constrained: bool
) -> tuple[Choice, ...]:
    """Drop repeats and fill up: by utility, those that keep the batch first, and the current configuration before worse
    ones."""
    chosen: list[Choice] = []
    seen: set[int] = set()
    order = _order(c, ranked)
    sure = offered(c)[order] & ~c.changes_kind("global_batch")[order] & ~_dominated(c, ranked)[order]
    likely = ranked.faster_by(WORTH_A_CHANGE) >= 0.5
    spare = [Choice("bolder" if likely[i] else "alternative", int(i)) for i in order[sure][:3]]
    rest = [Choice("alternative", int(i)) for i in order[~sure][:3]]
    near = [s for s in spare if ranked.utility[s.index] > -0.5]
    keep = [Choice("keep", c.baseline)]
    fill = (*near, *rest, *spare, *keep) if keep_is_asked_away else (*near, *keep, *rest, *spare)
    differs = _differs(ranked) | (np.arange(len(c)) == c.baseline)
    for choices, most in (((*wanted, *(x for x in fill if differs[x.index])), 3), (fill, least)):
        for choice in choices:
            if choice.index not in seen and len(chosen) < most:
                seen.add(choice.index)
                chosen.append(choice)
    if len(chosen) < least and constrained:
        raise ConfigError("constraints", f"leave only {len(chosen)} of three configurations; relax one and try again")
    lead, scaled = chosen[0], bool(missing_facts(c.config))
    return lead, *(_as_it_is(choice, lead, ranked, scaled) for choice in chosen[1:])


def _as_it_is(choice: Choice, lead: Choice, ranked: Ranked, scaled: bool) -> Choice:
    """The choice, called safer only where it is no less likely to gain than the lead, and bolder only where it is."""
    # As they are printed.
    here, there = (round(100.0 * claimed(float(ranked.faster[each.index]), scaled)) for each in (choice, lead))
    surer = here >= there and lead.kind != "keep"
    untrue = (choice.kind == "safer" and not surer) or (choice.kind == "bolder" and surer)
    return replace(choice, kind="alternative") if untrue else choice
