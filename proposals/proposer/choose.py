"""Three proposals out of the ranking: the best candidate as simple as it may be, a safer one, another.

All come from the set that nothing dominates, after every element that does not pay for itself was left out.  One gives
what the verdict asks for: less of the part of the step that it names (`asked_by`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnosis.report import Diagnosis
from perfmodel.calibration import Prices
from perfmodel.confidence import claimed
from perfmodel.config import missing_facts
from perfmodel.step_time import Z80
from proposals.proposer.prices import OFF_CHIP, Ranked, Weights, axes_of_group, shipped_weights, steps
from proposals.proposer.space import CHANGE_KINDS, Candidates

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: A candidate gives what is asked for where the part falls by this share, per token.
FALLS_BY = 0.1


@dataclass(frozen=True)
class Asked:
    """part: of the step, in words; given: whether each candidate makes it smaller."""

    part: str
    given: Bools


def asked_by(diagnosis: Diagnosis, c: Candidates, prices: Prices) -> Asked | None:
    """None where the verdict asks for nothing that a mesh or a training key could give: input and host, and steps
    whose limit is not clear."""
    parts, verdict = prices.parts_s, diagnosis.bottleneck.primary
    if verdict == "communication":
        name = _largest(parts, c.baseline)
        if name is None:  # no collective is listed, so that nothing is known to shorten it
            return None
        return Asked(_communication(name, c), _falls(parts[name], c))
    if verdict == "memory":
        return Asked("HBM traffic", _falls(parts["hbm"], c))
    if verdict == "compute":
        return Asked("compute time", _falls(parts["compute"], c))
    if verdict == "idle":
        waits = [parts[name] for name in ("idle", "kernel_launches") if name in parts]
        return Asked("idle time", _falls(sum(waits, np.zeros(len(c))), c))
    return None


def _largest(parts: Mapping[str, Floats], baseline: int) -> str | None:
    """The collectives that take the most time in the current configuration."""
    talk = {name: float(values[baseline]) for name, values in parts.items() if name.startswith("ici") or name == "dcn"}
    name = max(talk, key=lambda each: talk[each], default=None)
    return name if name is not None and talk[name] > 0 else None


def _communication(name: str, c: Candidates) -> str:
    if name == "dcn":
        return "DCN communication"
    axes = axes_of_group(name.partition(":")[2], c.config, c.config.mesh) if ":" in name else []
    return f"communication on {', '.join(axes)}" if axes else "exposed communication"


def _falls(part: Floats, c: Candidates) -> Bools:
    each = part / c.tokens_ratio
    return np.asarray(each < (1.0 - FALLS_BY) * each[c.baseline])


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
    c: Candidates,
    prices: Prices,
    ranked: Ranked,
    diagnosis: Diagnosis,
    baseline_excluded: bool = False,
    weights: Weights | None = None,
) -> tuple[Choice, ...]:
    """Return up to three distinct choices, as many as are worth a trial.

    The first is the recommendation: the largest utility among what is likely to gain what is worth a trial; keeping the
    current configuration if nothing is.  The others follow by utility: a variant of less risk, what gives what the
    verdict asks for (`left_out` says why nothing does), another batch, then whatever is not alike.  A batch is changed
    first only where nothing at the same batch is worth a trial.  Where fewer than three are, keeping the current
    configuration is the last.  baseline_excluded: the current configuration breaks a constraint, so it is none of them;
    there is another.
    """
    front = _front(c, ranked, (weights or shipped_weights()).simplify)
    likely = ranked.faster_by(WORTH_A_CHANGE)[front] >= 0.5
    worth = front[(ranked.utility[front] > 0.0) & likely & (ranked.gain[front] >= WORTH_A_TRIAL)]
    worth = _at_one_other_batch(c, ranked, worth)
    other_batch = c.changes_kind("global_batch")
    first = [*worth[~other_batch[worth]], *worth]
    if not first and baseline_excluded:
        first = [*front, *_order(c, ranked)]
    chosen = [int(row) for row in first[:1]]
    worth = worth[ranked.faster[worth] >= LEAST_LIKELY]
    asked = asked_by(diagnosis, c, prices)

    def preferred() -> Iterator[Bools]:
        """Yield which of `worth` are wanted next, beside what is chosen by then."""
        yield _is_safer(ranked, worth, chosen[0])
        if asked is not None and not asked.given[chosen].any():
            yield asked.given[worth]
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
    named, or in one setting of one mesh; or the same numbers."""
    same = np.zeros(len(rows), dtype=bool)
    others = np.column_stack([c.role(role) for role in ("model", "seq", "expert", "pipeline")])
    for index in used:
        apart = np.abs(ranked.gain[rows] - ranked.gain[index])
        memory = np.abs(c.used.total[rows] / c.used.total[index] - 1.0) < NO_DIFFERENCE
        tokens = c.tokens_ratio[rows] == c.tokens_ratio[index]
        settings = (c.changed[rows] != c.changed[index]).sum(axis=1)
        near = (others[rows] == others[index]).all(axis=1) & (settings <= 1) & (apart < WORTH_A_TRIAL)
        same |= tokens & ((near & ~_is_safer(ranked, rows, index)) | ((apart < NO_DIFFERENCE) & memory))
    return same


def _kind(ranked: Ranked, row: int, lead: int, scaled: bool) -> str:
    """Return what a choice is beside the lead: safer where it is of less risk or likelier to gain, as is printed;
    bolder where it is less likely to gain and may win more; else an alternative."""
    here, there = (round(100.0 * claimed(float(ranked.faster[each]), scaled)) for each in (row, lead))
    if here > there or (here == there and _is_safer(ranked, np.array([row]), lead)[0]):
        return "safer"
    if here == there:
        return "alternative"
    hopes = ranked.gain + Z80 * ranked.sigma
    return "bolder" if hopes[row] > hopes[lead] else "alternative"


def _front(c: Candidates, ranked: Ranked, share: float) -> Ints:
    """Return the candidates that are as simple as they may be and that no other dominates, best first."""
    order = _order(c, ranked)
    order = order[offered(c)[order] & _differs(ranked)[order]]
    batches = c.tokens_ratio[order]
    best = [order[batches == batch][:SIMPLIFIED] for batch in np.unique(batches)]
    dominated = _dominated(c, ranked)
    chosen = set()
    for row in (int(row) for rows in best for row in rows):
        simple = simplest(c, ranked, row, share)
        # Simplifying may lead to what another dominates: then the candidate itself is looked at, where all of it pays.
        if not dominated[simple]:
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


def shortlist(c: Candidates, prices: Prices, ranked: Ranked, diagnosis: Diagnosis) -> Ints:
    """Return rows of the meshes worth a closer look: the best by utility, the best that give what the verdict asks for,
    those at most one doubling away, and the one that ran."""
    order = np.argsort(-ranked.utility, kind="stable")
    asked = asked_by(diagnosis, c, prices)
    best = [order] if asked is None else [order, order[asked.given[order]]]
    chosen = [list(dict.fromkeys(c.mesh_of[rows].tolist()))[:BEAM] for rows in best]
    near = np.intersect1d(np.flatnonzero(c.mesh_doublings <= 1.0), c.mesh_of)
    return np.unique(np.concatenate([*chosen, near, [c.home]]).astype(np.int64))


def left_out(
    asked: Asked | None,
    c: Candidates,
    ranked: Ranked,
    diagnosis: Diagnosis,
    chosen: tuple[Choice, ...],
) -> str | None:
    """Return why none of the three gives what the verdict asks for; None where one does, or nothing is asked for."""
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
    settings = [f"{name} {value}" for name, value in c.change(best).items()]
    which = " with ".join([c.mesh(best).text(), *([", ".join(settings)] if settings else [])])
    if ranked.gain[best] < 0:
        why = "is predicted to be slower than the current one"
    elif _dominated(c, ranked)[best]:
        why = "is worse than another at the same batch, which is faster and likelier to be so"
    else:
        why = "is predicted to gain less than the others"
    return f"{start} the best configuration that reduces it, {which}, {why}, so none is proposed."


def in_order(c: Candidates, ranked: Ranked) -> list[int]:
    """Return all that the model can price, the current configuration included: what is more likely than not to gain
    first, each by its utility."""
    order = np.argsort(-ranked.utility, kind="stable")
    order = order[_priced(c)[order]]
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
    return _priced(c) & (c.changed[:, CHANGE_KINDS.index("global_batch")] >= 0)


def _priced(c: Candidates) -> Bools:
    """Return True for candidates whose further changes the model can price: all where everything is known."""
    return np.full(len(c), True) if not missing_facts(c.config) else ~c.changes_work()


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


def _differs(ranked: Ranked) -> Bools:
    """Return True where a candidate is expected to take another time at all: an axis renamed from data to FSDP may
    not."""
    return np.asarray(np.abs(ranked.gain) >= NO_DIFFERENCE)
