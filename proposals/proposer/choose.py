"""Three proposals out of the ranking: the best candidate as simple as it may be, a safer one, another.

All come from the set that nothing dominates, after every element that does not pay for itself was left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfmodel.confidence import claimed
from perfmodel.config import missing_facts
from perfmodel.step_time import Z80
from proposals.proposer.prices import Ranked, Weights, shipped_weights, steps
from proposals.proposer.space import CHANGE_KINDS, Candidates

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: How many are offered.
PROPOSALS = 3
#: A smaller gain, as a logarithm of time per token, is not worth a change: published repeats differ by as much.
WORTH_A_CHANGE = 0.01
#: A smaller expected gain is not worth a trial: one run against another, each with that noise, could not confirm it.
WORTH_A_TRIAL = 2.0 * WORTH_A_CHANGE
#: Gains below this, as a logarithm, are the model's rounding.
NO_DIFFERENCE = 0.001
#: Meshes on which every combination of training keys is tried: the best ones, besides neighbouring ones.
BEAM = 32
#: Candidates that are simplified: the best by utility of each batch.
SIMPLIFIED = 64
#: What is less likely to gain than this is a coin toss, not a trial.
LEAST_LIKELY = 0.6
#: From this chance to fit, more free memory is worth nothing.
SURELY_FITS = 0.95
#: A variant of less risk halves the chance not to run, or is so much more likely to gain; it keeps this share of the
#: gain.
CLEARLY_SURER, KEEPS = 0.03, 0.7
#: What another batch must gain beyond all that keep it, as a logarithm of time per token: it changes the training.
WORTH_ANOTHER_BATCH = 0.05


@dataclass(frozen=True)
class Choice:
    """One of the three: a candidate, and what it is proposed as."""

    kind: str
    index: int


def choose(
    c: Candidates, ranked: Ranked, baseline_excluded: bool = False, weights: Weights | None = None
) -> tuple[Choice, ...]:
    """Return up to three distinct choices, as many as are worth a trial.

    The first is the recommendation: the largest utility among what is likely to gain what is worth a trial, or what is
    better than that in all that is printed; keeping the current configuration if nothing is.  The others follow by
    utility: a variant of less risk, another batch, then whatever is not alike.  A batch is changed first only where
    nothing at the same batch is worth a trial.  Where fewer than three are, keeping the current configuration is the
    last.  baseline_excluded: the current configuration breaks a constraint, so it is none of them; there is another.
    """
    likely = (ranked.faster_by(WORTH_A_CHANGE) >= 0.5) & (ranked.faster >= LEAST_LIKELY)
    front = _front(c, ranked, likely, (weights or shipped_weights()).simplify)
    worth = front[(ranked.utility[front] > 0.0) & likely[front] & (ranked.gain[front] >= WORTH_A_TRIAL)]
    worth = _at_one_other_batch(c, ranked, worth)
    other_batch = c.changes_kind("global_batch")
    first = [*worth[~other_batch[worth]], *worth]
    if not first and baseline_excluded:
        first = [*front, *_order(c, ranked)]
    printed = _printed(c, ranked)
    same_batch = [int(row) for row in first if c.tokens_ratio[row] == c.tokens_ratio[first[0]]]
    better = [row for row in same_batch if (printed[row] >= printed[first[0]]).all()]
    chosen = sorted(better, key=lambda row: tuple(-printed[row]))[:1]
    # Of two that a trial could hardly tell apart, the one with half the risk is the better first trial.
    near = [row for row in same_batch if ranked.gain[chosen[0]] - ranked.gain[row] < WORTH_A_TRIAL]
    surer = [row for row in near if _is_safer(ranked, np.array([row]), chosen[0])[0]]
    chosen = sorted(surer, key=lambda row: -ranked.utility[row])[:1] or chosen

    def preferred() -> Iterator[Bools]:
        """Yield which of `worth` are wanted next, beside what is chosen by then."""
        yield _is_safer(ranked, worth, chosen[0])
        yield other_batch[worth]
        yield from [np.ones(len(worth), dtype=bool)] * PROPOSALS

    for wanted in preferred() if chosen else ():
        distinct = wanted & ~_alike(c, ranked, worth, chosen)
        if len(chosen) < PROPOSALS:
            chosen += [int(row) for row in worth[distinct][:1]]
    scaled, kinds = bool(missing_facts(c.config)), ["recommendation"]
    kinds += [_kind(ranked, row, chosen[0], scaled) for row in chosen[1:]]
    choices = [Choice(kind, row) for kind, row in zip(kinds, chosen, strict=False)]
    if len(choices) < PROPOSALS and not baseline_excluded:
        choices.append(Choice("keep", c.baseline))
    return tuple(choices)


def _at_one_other_batch(c: Candidates, ranked: Ranked, rows: Ints) -> Ints:
    """Return the rows with at most one that changes the batch: the best, where it gains clearly more than all at the
    same batch.  Another batch is another training."""
    other = c.changes_kind("global_batch")[rows]
    most = max(0.0, float(ranked.gain[rows[~other]].max(initial=0.0)))
    clearly = rows[other & (ranked.gain[rows] > most + WORTH_ANOTHER_BATCH)][:1]
    return rows[~other | np.isin(rows, clearly)]


def _is_safer(ranked: Ranked, rows: Ints, lead: int) -> Bools:
    """Return True for variants of less risk than the lead that keep most of its gain."""
    keeps = ranked.gain[rows] >= KEEPS * ranked.gain[lead]
    risk = 1.0 - ranked.runs[lead]
    halves = (risk > 1.0 - SURELY_FITS) & (1.0 - ranked.runs[rows] <= 0.5 * risk)
    return np.asarray(keeps & (halves | (ranked.faster[rows] >= ranked.faster[lead] + CLEARLY_SURER)))


def _alike(c: Candidates, ranked: Ranked, rows: Ints, used: list[int]) -> Bools:
    """Return True for rows that a reader would see as one that is used: the same training of the same tokens with no
    difference that a trial could confirm, on a mesh that differs at most in how the axes that shard the batch are
    named, or in one setting of one mesh; or the same numbers; or of the same batch one is no better than the other in
    speed, chance and memory as they are printed, where memory counts for nothing if that of the faster surely fits."""
    same = np.zeros(len(rows), dtype=bool)
    printed = _printed(c, ranked)
    others = np.column_stack([c.role(role) for role in ("model", "seq", "expert", "pipeline")])
    for index in used:
        apart = np.abs(ranked.gain[rows] - ranked.gain[index])
        memory = np.abs(c.used.total[rows] / c.used.total[index] - 1.0) < NO_DIFFERENCE
        tokens = c.tokens_ratio[rows] == c.tokens_ratio[index]
        settings = (c.changed[rows] != c.changed[index]).sum(axis=1)
        near = (others[rows] == others[index]).all(axis=1) & (settings <= 1) & (apart < WORTH_A_TRIAL)
        beaten = (printed[rows] <= printed[index]).all(axis=1) | (printed[rows] >= printed[index]).all(axis=1)
        if c.probability_fits[index] >= SURELY_FITS:
            slower = ranked.gain[index] - ranked.gain[rows] > WORTH_A_CHANGE
            beaten |= slower & (printed[rows, :2] <= printed[index, :2]).all(axis=1)
        same |= tokens & (beaten | (near & ~_is_safer(ranked, rows, index)) | ((apart < NO_DIFFERENCE) & memory))
    return same


def _printed(c: Candidates, ranked: Ranked) -> Floats:
    """Return speed, chance and memory as a reader compares them, more of each the better: (candidates, 3)."""
    chance = claimed(ranked.faster, bool(missing_facts(c.config)))
    return np.column_stack([np.round(np.exp(ranked.gain), 2), np.round(chance, 2), -c.used.total])


def _kind(ranked: Ranked, row: int, lead: int, scaled: bool) -> str:
    """Return what a choice is beside the lead: safer where it is of less risk or likelier to gain, as is printed;
    bolder where it is less likely to gain and may win more; else an alternative."""
    here, there = (round(100.0 * float(claimed(ranked.faster[each], scaled))) for each in (row, lead))
    if here > there or (here == there and _is_safer(ranked, np.array([row]), lead)[0]):
        return "safer"
    if here == there:
        return "alternative"
    hopes = ranked.gain + Z80 * ranked.sigma
    return "bolder" if hopes[row] > hopes[lead] else "alternative"


def _front(c: Candidates, ranked: Ranked, likely: Bools, share: float) -> Ints:
    """Return the candidates that are as simple as they may be and that no other dominates, best first; none is
    simplified to what is no longer likely to gain."""
    order = _order(c, ranked)
    # What is not expected to take another time at all is no change: an axis renamed from data to FSDP may not.
    order = order[offered(c)[order] & (np.abs(ranked.gain[order]) >= NO_DIFFERENCE)]
    batches = c.tokens_ratio[order]
    best = [order[batches == batch][:SIMPLIFIED] for batch in np.unique(batches)]
    dominated = _dominated(c, ranked)
    chosen = set()
    for row in (int(row) for rows in best for row in rows):
        simple = simplest(c, ranked, row, share)
        # Simplifying may lead to what another dominates: then the candidate itself is looked at, where all of it pays.
        if not dominated[simple] and likely[simple] >= likely[row]:
            chosen.add(simple)
        elif not dominated[row] and ranked.utility[row] > ranked.utility[simple]:
            chosen.add(row)
    front = np.array(sorted(chosen), dtype=np.int64)
    return np.asarray(front[np.argsort(-ranked.utility[front], kind="stable")])


def simplest(c: Candidates, ranked: Ranked, index: int, share: float) -> int:
    """Return the candidate with the fewest steps on the way from the current configuration to this one that keeps all
    but a share of its utility: parts of a move or change that add next to nothing are left out."""
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


def shortlist(c: Candidates, ranked: Ranked) -> Ints:
    """Return rows of the meshes worth a closer look: the best by utility, those at most one doubling away, and the one
    that ran."""
    order = np.argsort(-ranked.utility, kind="stable")
    best = list(dict.fromkeys(c.mesh_of[order].tolist()))[:BEAM]
    near = np.intersect1d(np.flatnonzero(c.mesh_doublings <= 1.0), c.mesh_of)
    return np.unique(np.concatenate([best, near, [c.home]]).astype(np.int64))


def in_order(c: Candidates, ranked: Ranked) -> list[int]:
    """Return all that the model can price, the current configuration included: what is more likely than not to gain
    first, each by its utility."""
    order = np.argsort(-ranked.utility, kind="stable")
    likely = (ranked.faster[order] >= 0.5) & (ranked.utility[order] > 0.0)
    return [int(i) for i in (*order[likely], *order[~likely])]


def keeping_is_right(candidates: Candidates, ranked: Ranked, chosen: Sequence[Choice] = ()) -> float:
    """Return the probability that nothing that may be offered, or was chosen, runs and gains what is worth a change."""
    counted = offered(candidates)
    counted[[choice.index for choice in chosen]] = True
    counted[candidates.baseline] = False
    better = ranked.faster_by(WORTH_A_CHANGE)[counted]
    return 1.0 - float(better.max()) if len(better) else 1.0


def offered(c: Candidates) -> Bools:
    """Return True for what may be proposed: what the model can price, at the batch that ran or a larger one.  A smaller
    batch is for memory alone: it is offered where nothing else is left."""
    return np.asarray(c.changed[:, CHANGE_KINDS.index("global_batch")] >= 0)


def _dominated(c: Candidates, ranked: Ranked) -> Bools:
    """Return True where another that may be offered, at the same batch, is no slower, no less likely to be faster and
    needs no more memory, and is better in one of them.  Of what surely fits memory does not count.  Nothing is
    dominated where memory cannot be computed."""
    dominated = np.zeros(len(c), dtype=bool)
    if missing_facts(c.config):
        return dominated
    gain, faster, tokens = ranked.gain, ranked.faster, c.tokens_ratio
    memory = np.where(c.probability_fits >= SURELY_FITS, 0.0, c.used.total)
    pool = np.flatnonzero(offered(c))
    for batch in np.unique(tokens[pool]):
        rows = pool[tokens[pool] == batch]
        front: list[int] = []
        # Of what is equally fast, the one that needs less memory and fewer steps comes first.
        for row in rows[np.lexsort((steps(c)[rows], memory[rows], -np.round(gain[rows], 6)))]:
            beaten = (faster[front] >= faster[row] - 1e-9) & (memory[front] <= memory[row] * (1.0 + 1e-9))
            dominated[row] = beaten.any()
            if not dominated[row]:
                front.append(int(row))
    return dominated


def _order(c: Candidates, ranked: Ranked) -> Ints:
    order = np.argsort(-ranked.utility, kind="stable")
    return order[order != c.baseline]
