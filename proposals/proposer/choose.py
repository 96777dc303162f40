"""Three proposals out of the ranking: the best candidate as simple as it may be, a safer one, another hypothesis.

All come from the set that nothing dominates, after every element that does not pay for itself was left out.  One gives
what the verdict asks for: less of the part of the step that it names (`asked_by`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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
Floats = npt.NDArray[np.float64]

#: A candidate gives what is asked for where the part falls by this share, per token and chip.
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
    each = part / (c.tokens_ratio * c.chips_ratio)
    return np.asarray(each < (1.0 - FALLS_BY) * each[c.baseline])


Ints = npt.NDArray[np.int64]

#: How many are offered.
PROPOSALS = 3
#: A smaller gain, as a logarithm of time per token, is not worth a change: published repeats differ by as much.
WORTH_A_CHANGE = 0.01
#: A smaller expected gain is not worth a trial: one run against another, each with that noise, could not confirm it.
WORTH_A_TRIAL = 2.0 * WORTH_A_CHANGE
#: Gains below this, as a logarithm, are the model's rounding.
NO_DIFFERENCE = 0.001
#: Two moves whose directions differ by less than this cosine are one hypothesis.
SAME_WAY = 0.8
#: Meshes on which every combination of training keys is tried: the best ones, besides neighbouring ones.
BEAM = 32
#: Candidates that are simplified: the best by utility of each batch.
SIMPLIFIED = 64
#: What the verdict asks for is proposed unless it is less likely than this to gain.
LEAST_LIKELY = 0.3
#: From this chance not to run, a variant of less risk is preferred to another of the same; it keeps this share of the
#: gain.
RISKY, KEEPS = 0.1, 0.7
#: By how much more likely to gain, or with which share of the memory, a variant counts as safer.
CLEARLY_SURER, MUCH_LESS_MEMORY = 0.03, 0.75
#: What another batch must gain beyond all that keep it, as a logarithm of time per token: it changes the training.
WORTH_ANOTHER_BATCH = 0.05


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
    baseline_excluded: bool = False,
    weights: Weights | None = None,
) -> tuple[Choice, ...]:
    """Return up to three distinct choices, as many as are worth a trial.

    The first is the recommendation: the largest utility among what is more likely than not to gain what is worth a
    change; keeping the current configuration if nothing is.  A batch is changed first only where nothing at the same
    batch is that likely to gain.  One of the three gives what the verdict asks for, where anything legal does that may
    gain (`left_out` says why not).  Where fewer than three are worth a trial, keeping the current configuration is the
    last.  baseline_excluded: the current configuration breaks a constraint, so it is none of them; there is another.
    """
    c = candidates
    front = _front(c, ranked, (weights or shipped_weights()).simplify)
    likely = ranked.faster_by(WORTH_A_CHANGE)
    worth = front[
        (ranked.utility[front] > 0.0) & (likely[front] >= LEAST_LIKELY) & (ranked.gain[front] >= WORTH_A_TRIAL)
    ]
    worth = _at_one_other_batch(c, ranked, worth)
    chosen: list[Choice] = []

    def add(choices: Iterable[Choice]) -> None:
        for choice in choices:
            used = [other.index for other in chosen]
            row = np.array([choice.index])
            if len(chosen) < PROPOSALS and choice.index not in used and not _alike(ranked, c, row, used)[0]:
                chosen.append(choice)

    hopeful = worth[likely[worth] >= 0.5]
    other_batch = c.changes_kind("global_batch")[hopeful]
    best = next((int(rows[0]) for rows in (hopeful[~other_batch], hopeful) if len(rows)), None)
    if best is None and baseline_excluded:
        best = int((worth if len(worth) else front if len(front) else _order(c, ranked))[0])
    if best is not None:
        add([Choice("recommendation", best)])
        add(_safer(c, ranked, worth, best))
    elif not baseline_excluded:
        add([Choice("keep", c.baseline)])
    add(_answer(ranked, worth, [choice.index for choice in chosen], asked_by(diagnosis, c, prices)))
    add(Choice("alternative", int(row)) for row in hopeful[other_batch])
    left = _of_less_risk(ranked, worth, [choice.index for choice in chosen])
    add(_another(c, ranked, left, [choice.index for choice in chosen]))
    add(_another(c, ranked, hopeful, [choice.index for choice in chosen]))
    if not baseline_excluded:
        add([Choice("keep", c.baseline)])
    lead, scaled = chosen[0], bool(missing_facts(c.config))
    return lead, *(_as_it_is(choice, lead, ranked, scaled) for choice in chosen[1:])


def _at_one_other_batch(c: Candidates, ranked: Ranked, rows: Ints) -> Ints:
    """Return the rows with at most one that changes the batch: the best, where it gains clearly more than all at the
    same batch.  Another batch is another training."""
    other = c.changes_kind("global_batch")[rows]
    most = max(0.0, float(ranked.gain[rows[~other]].max(initial=0.0)))
    clearly = rows[other & (ranked.gain[rows] > most + WORTH_ANOTHER_BATCH)][:1]
    return rows[~other | np.isin(rows, clearly)]


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
        why = "is worse than another at the same batch, which is faster, likelier to be so and needs no more memory"
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
    needs no more memory, and is better in one of them.  Nothing is dominated where memory cannot be computed."""
    dominated = np.zeros(len(c), dtype=bool)
    if missing_facts(c.config):
        return dominated
    gain, faster, memory, tokens = ranked.gain, ranked.faster, c.used.total, c.tokens_ratio
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


def _safer(c: Candidates, ranked: Ranked, worth: Ints, lead: int) -> Iterator[Choice]:
    """Yield the best at the recommendation's batch that keeps most of its gain at clearly less risk; where none does,
    that is nearer to the current configuration and no less likely to gain, or that keeps most with much less memory."""
    rows = worth[(c.tokens_ratio[worth] == c.tokens_ratio[lead]) & (ranked.faster[worth] >= 0.5)]
    far, memory, faster = steps(c), c.used.total, ranked.faster
    surer = faster[rows] >= faster[lead] - 0.005  # as percentages are printed
    keeps = ranked.gain[rows] >= KEEPS * ranked.gain[lead]
    spares = _spares_risk(ranked, rows, [lead]) | (keeps & (faster[rows] >= faster[lead] + CLEARLY_SURER))
    frugal = keeps & surer & (memory[rows] <= MUCH_LESS_MEMORY * memory[lead])
    for kind in (spares, surer & (far[rows] < far[lead]), frugal):
        yield from (Choice("safer", int(row)) for row in rows[kind][:1])
        if kind.any():
            return


def _spares_risk(ranked: Ranked, rows: Ints, used: list[int]) -> Bools:
    """Return True for rows that keep most of the gain of the best that is used at half the risk not to run of all of
    these; nowhere where one of them has little risk."""
    risk = float((1.0 - ranked.runs[used]).min(initial=1.0))
    most = float(ranked.gain[used].max(initial=0.0))
    half = (1.0 - ranked.runs[rows] <= 0.5 * risk) & (ranked.gain[rows] >= KEEPS * most)
    return np.asarray(half & (risk >= RISKY))


def _of_less_risk(ranked: Ranked, rows: Ints, used: list[int]) -> Ints:
    """Return the rows that keep the last place from failing with the others for one reason, where there are any; all of
    them where one of the others is safe."""
    spares = _spares_risk(ranked, rows, used)
    return rows[spares] if len(used) == PROPOSALS - 1 and spares.any() else rows


def _answer(ranked: Ranked, front: Ints, used: list[int], asked: Asked | None) -> Iterator[Choice]:
    """Yield the best of what gives what the verdict asks for, where none of the others does."""
    if asked is None or asked.given[used].any():
        return
    given = front[asked.given[front] & (ranked.faster[front] >= LEAST_LIKELY)]
    if len(given):
        yield Choice("alternative", int(given[0]))


def _another(c: Candidates, ranked: Ranked, rows: Ints, used: list[int]) -> Iterator[Choice]:
    """Yield the best that moves another way than the others do, or at least to another mesh; called bolder where it may
    win more than they."""
    other_way = _largest_cosine(c, rows, used) < SAME_WAY
    rows = rows[other_way if other_way.any() else ~np.isin(c.mesh_of[rows], c.mesh_of[used])]
    promising = rows[ranked.faster_by(WORTH_A_CHANGE)[rows] >= 0.5]
    hopes = ranked.gain + Z80 * ranked.sigma
    for best in (promising if len(promising) else rows)[:1]:
        bolder = len(promising) and hopes[best] > max((hopes[i] for i in used), default=0.0)
        yield Choice("bolder" if bolder else "alternative", int(best))


def _alike(ranked: Ranked, c: Candidates, rows: Ints, used: list[int]) -> Bools:
    """Return True for rows that a reader would see as one that is used: the same numbers, or the same change but for
    how the axes that shard the batch are named, with no difference worth a change."""
    same = np.zeros(len(rows), dtype=bool)
    others = np.column_stack([c.role(role) for role in ("model", "seq", "expert", "pipeline")])
    for index in used:
        apart = np.abs(ranked.gain[rows] - ranked.gain[index])
        memory = np.abs(c.used.total[rows] / c.used.total[index] - 1.0) < NO_DIFFERENCE
        numbers = (apart < NO_DIFFERENCE) & memory & (c.tokens_ratio[rows] == c.tokens_ratio[index])
        change = (others[rows] == others[index]).all(axis=1) & (c.change_of[rows] == c.change_of[index])
        same |= numbers | (change & (apart < WORTH_A_CHANGE))
    return same


def _directions(c: Candidates, rows: Ints) -> Floats:
    """Return which way each axis and each training key moves: (rows, columns) of -1, 0 and 1."""
    moves = np.sign(np.log2(c.sizes / c.sizes[c.home][None, :]))
    return np.column_stack([moves[c.mesh_of[rows]], np.sign(c.changed[rows])])


def _largest_cosine(c: Candidates, rows: Ints, used: list[int]) -> Floats:
    """Return the largest cosine between the directions in which each row and those used move things, at least 0."""

    def unit(at: Ints) -> Floats:
        whole = _directions(c, at)
        return np.asarray(whole / np.maximum(np.linalg.norm(whole, axis=1, keepdims=True), 1e-9))

    if not used:
        return np.zeros(len(rows))
    return np.asarray(np.maximum(unit(rows) @ unit(np.array(used)).T, 0.0).max(axis=1))


def _differs(ranked: Ranked) -> Bools:
    """Return True where a candidate is expected to take another time at all: an axis renamed from data to FSDP may
    not."""
    return np.asarray(np.abs(ranked.gain) >= NO_DIFFERENCE)


def _as_it_is(choice: Choice, lead: Choice, ranked: Ranked, scaled: bool) -> Choice:
    """Return the choice, called safer only where it is no less likely to gain than the lead, and bolder only where it
    is."""
    # As they are printed.
    here, there = (round(100.0 * claimed(float(ranked.faster[each.index]), scaled)) for each in (choice, lead))
    surer = here >= there and lead.kind != "keep"
    untrue = (choice.kind == "safer" and not surer) or (choice.kind == "bolder" and surer)
    return replace(choice, kind="alternative") if untrue else choice
