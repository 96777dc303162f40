"""Measured effects of XLA flags: what sets of them did to the time per token, and are expected to do to a run.

Start with `Effects`.  A trial is a record that changed nothing but flags.  The logarithm of its time ratio is the
difference of one function of flags and situation at its two sides, and that function is a Gaussian process: a sum over
flags, plus a part of the whole set in which interactions show (a flag that helps alone and hurts beside another).  So a
flag that was dropped tells of one that is set, a part tells of the whole, and what was measured elsewhere, or in
sequences of another length, counts for less.  What nobody measured is expected to do nothing, and is not offered.
Numbers: docs/effects.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log, log2
from statistics import NormalDist, median

import numpy as np
import numpy.typing as npt

from history import moves
from history.record import NO_CHANGE, Record, Side
from perfmodel.known_flags import UNSET, differences, flag_values, number, settings

Floats = npt.NDArray[np.float64]
Settings = Mapping[str, str]

#: Standard deviation of log(time) that one flag brings, and that a whole set brings beyond its flags; of how many
#: flags two sets must differ for the latter to have little in common.
OF_A_FLAG, OF_A_SET, SETS_APART = 0.02, 0.005, 4.0
#: That any change of flags brings: most runs that were compared with had been tuned.
OF_ANY_CHANGE = 0.005
#: What two stacks (program and model) share of a flag's effect; doublings of a number, and of the sequence, over which
#: an effect is another; what is left of it for each role of the mesh that one of two runs has alone.
OTHER_STACK, PER_VALUE, PER_LENGTH, PER_ROLE = 0.8, 0.1, 1.0, 0.7
#: Repeats of one run, as a share of its time, where a record does not say; and what another image or day adds.
REPEATS, ANOTHER_DAY = 0.01, 0.003
#: Fewer trials are no effect; those do not count that share less of an effect.
LEAST_TRIALS, LEAST_NEAR = 2, 0.3
#: What is less likely to gain is not offered.
LEAST_LIKELY = 0.7
Z80 = NormalDist().inv_cdf(0.9)


@dataclass(frozen=True)
class Situation:
    """Hold what an effect depends on beside the flags.  stack: program and model; roles: of mesh axes larger than 1."""

    chip: str
    stack: tuple[str, str] = ("", "")
    seq_len: float | None = None
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True)
class FlagEffect:
    """Hold what a change of flags is expected to do to the time per token, and which records say so.

    ratio: time after / before, below 1 is faster, with its 80 % interval; sigma: standard deviation of its logarithm.
    trials: records of this change, its reverse or a part of it, the most telling first; whole: those of all of it.
    measured: their median ratio, of the whole change where that was measured.  failed: runs that did not run with it.
    """

    ratio: float
    low80: float
    high80: float
    sigma: float
    trials: tuple[Record, ...]
    whole: int
    measured: float
    failed: tuple[Record, ...] = ()

    @property
    def faster(self) -> float:
        """Return the probability that it gains."""
        return NormalDist().cdf(-log(self.ratio) / self.sigma)

    @property
    def summary(self) -> dict[str, float]:
        """Return the effect as speed-ups, and the numbers of the records behind it."""
        speedups = {"speedup": self.ratio, "low80": self.high80, "high80": self.low80, "measured": self.measured}
        numbers = {"trials": len(self.trials), "whole": self.whole, "stacks": self.stacks, "failed": len(self.failed)}
        return {name: 1.0 / ratio for name, ratio in speedups.items()} | {name: float(n) for name, n in numbers.items()}

    @property
    def stacks(self) -> int:
        return len({situation_of(record).stack for record in self.trials})


@dataclass(frozen=True)
class FlagTrial:
    """A record that changed flags alone.  change: flags that act otherwise after it, as they then are; log_ratio: of
    time per token, after over before; 0 of a run that failed."""

    record: Record
    before: Settings
    after: Settings
    where: Situation
    log_ratio: float

    @cached_property
    def change(self) -> Settings:
        return differences(self.before, self.after)

    def direction(self, new: Settings) -> float:
        """Return 1 if the trial set flags as they are in `new`, −1 if it dropped them, else 0."""
        if all(new.get(name, UNSET) == value for name, value in self.change.items()):
            return 1.0
        return -1.0 if all(new.get(name, UNSET) == self.before.get(name, UNSET) for name in self.change) else 0.0

    def bears_on(self, change: Settings, new: Settings) -> bool:
        """Return True if what it changed, or took back, is at least half part of a change that leads to `new`."""
        shared = self.change.keys() & change.keys()
        return bool(shared) and 2 * len(shared) >= len(self.change) and self.direction(new) != 0.0


def trials_of(records: Iterable[Record], chip: str) -> list[FlagTrial]:
    """Return the records of a chip that changed flags alone and name those of both sides."""
    found = []
    for record in records:
        written = [_written(record, side) for side in (record.before, record.after)]
        if record.chip == chip and record.changes == ("xla_flags",) and None not in written:
            ratio = -log(record.speedup) if record.speedup else 0.0
            before, after = (settings(flags, chip) for flags in written)
            found.append(FlagTrial(record, before, after, situation_of(record), ratio))
    return found


def _written(record: Record, side: Side) -> object:
    """Return a side's flags as written; None where it does not say.  What was measured here says all that it set."""
    return side.training.get("xla_flags", [] if record.provenance == "measured" else None)


class Effects:
    """The effects that records tell of, on one chip."""

    def __init__(self, records: Iterable[Record], chip: str) -> None:
        trials = trials_of(records, chip)
        self.chip = chip
        self.trials = [trial for trial in trials if trial.record.speedup and trial.change]
        self._failed = [trial for trial in trials if trial.record.failure]
        self._sides = [(side, trial.where) for trial in self.trials for side in (trial.before, trial.after)]

    def of(self, before: object, after: object, where: Situation) -> FlagEffect | None:
        """Return what a change of flags does to a run; None where fewer than `LEAST_TRIALS` trials tell of it, or none
        of some flag of it."""
        old, new = settings(before, self.chip), settings(after, self.chip)
        change = differences(old, new)
        told = [
            trial for trial in self.trials if trial.bears_on(change, new) and _near(trial.where, where) >= LEAST_NEAR
        ]
        if len(told) < LEAST_TRIALS or change.keys() - {name for trial in told for name in trial.change}:
            return None
        told.sort(key=lambda trial: (-len(trial.change.keys() & change.keys()), -_near(trial.where, where)))
        mean, sigma = self.expected([(old, new, where)])[0]
        whole = [trial for trial in told if change.keys() <= trial.change.keys()]
        failed = (one for one in self._failed if one.change and one.change.items() <= change.items())
        return FlagEffect(
            exp(mean), exp(mean - Z80 * sigma), exp(mean + Z80 * sigma), sigma, tuple(one.record for one in told),
            len(whole), exp(median(one.log_ratio * one.direction(new) for one in whole or told)),
            tuple(one.record for one in failed),
        )  # fmt: skip

    def offers(self, flags: Sequence[str], where: Situation) -> list[tuple[tuple[str, ...], FlagEffect]]:
        """Return the flags of a run with each set that measured well, and its effect, the largest gain first.

        A set is what one record changed; it is offered where it is likely to gain, and its median trial gained.
        """
        found: dict[frozenset[tuple[str, str]], tuple[tuple[str, ...], FlagEffect]] = {}
        for trial in self.trials:
            if trial.log_ratio >= 0.0 or _near(trial.where, where) < LEAST_NEAR:
                continue
            written = tuple(_with(flags, trial.record))
            key = frozenset(settings(written, self.chip).items())
            if key in found:
                continue
            effect = self.of(flags, written, where)
            if effect and max(effect.measured, effect.ratio) <= 1.0 - NO_CHANGE and effect.faster >= LEAST_LIKELY:
                found[key] = written, effect
        return sorted(found.values(), key=lambda offer: offer[1].ratio)

    def expected(self, asked: Sequence[tuple[Settings, Settings, Situation]]) -> list[tuple[float, float]]:
        """Return mean and standard deviation of the logarithm of the time ratio, however little is known."""
        if not self.trials:
            return [(0.0, float("inf"))] * len(asked)
        sides = [side for old, new, where in asked for side in ((old, where), (new, where))]
        across = _differences(_kernel(sides, self._sides)) + OF_ANY_CHANGE**2
        own = np.diag(_differences(_kernel(sides, sides))) + OF_ANY_CHANGE**2
        mean = across @ self._precision @ self._measured
        left = own - np.einsum("ij,jk,ik->i", across, self._precision, across)
        return [(float(m), float(np.sqrt(max(v, ANOTHER_DAY**2)))) for m, v in zip(mean, left, strict=True)]

    @cached_property
    def _measured(self) -> Floats:
        return np.array([trial.log_ratio for trial in self.trials])

    @cached_property
    def _precision(self) -> Floats:
        """Return the inverse covariance of the measured pairs: of what flags do, and of noise, which pairs share that
        were compared with one baseline."""
        sides = [side for trial in self.trials for side in (trial.record.before, trial.record.after)]
        # A side without a label is a run of its own.
        runs = np.array([
            f"{where.stack} {side.label or place}"
            for place, (side, (_, where)) in enumerate(zip(sides, self._sides, strict=True))
        ])  # fmt: skip
        spread = np.array([moves.number(side.kpis.get("repeat_spread")) or REPEATS for side in sides])
        noise = _differences((runs[:, None] == runs[None, :]) * np.outer(spread, spread) / 2.0)
        own = OF_ANY_CHANGE**2 + ANOTHER_DAY**2 * np.eye(len(self.trials))
        return np.asarray(np.linalg.inv(_differences(_kernel(self._sides, self._sides)) + noise + own))


def situation_of(record: Record) -> Situation:
    """Return the situation of a record, which changed nothing but flags."""
    named = record.before.training.get("software") or ("" if record.provenance == "measured" else record.source)
    program = next(iter(str(named).replace(",", " ").split()), "").lower()
    sizes = moves.role_sizes(record.before, fsdp_as_data=True)
    roles = frozenset(role for role, size in sizes.items() if size > 1)
    length = moves.number(record.before.training.get("seq_len"))
    return Situation(record.chip, (program, record.model_name), length, roles)


def _with(flags: Sequence[str], record: Record) -> Iterator[str]:
    """Yield a run's flags with what a record set and without what it dropped, as they are written."""
    before, after = (flag_values(_written(record, side)) for side in (record.before, record.after))
    touched = {name for name in {**before, **after} if before.get(name) != after.get(name)}
    for written, kept in ((flags, False), (_written(record, record.after), True)):
        yield from (flag for flag in _words(written) if (not touched.isdisjoint(flag_values(flag))) == kept)


def _words(written: object) -> list[str]:
    """Return flags one by one, as they are written where that is a list of them."""
    values = flag_values(written)
    given = written if isinstance(written, list | tuple) else ()
    words = [word for item in given if isinstance(item, str) for word in item.split()]
    return words if flag_values(words) == values else [f"--{name}={values[name]}" for name in values]


def _near(one: Situation, other: Situation) -> float:
    """Return how much of an effect two situations share (0–1)."""
    length = OTHER_STACK
    if one.seq_len and other.seq_len:
        length = exp(-0.5 * (log2(one.seq_len / other.seq_len) / PER_LENGTH) ** 2)
    stack = 1.0 if one.stack == other.stack else OTHER_STACK
    return length * stack * PER_ROLE ** len(one.roles ^ other.roles)


def _differences(kernel: Floats) -> Floats:
    """Return the covariance of (after − before) from that of sides, which alternate, along every axis."""
    rows = kernel[1::2] - kernel[::2]
    return np.asarray(rows[:, 1::2] - rows[:, ::2])


def _kernel(ones: Sequence[tuple[Settings, Situation]], others: Sequence[tuple[Settings, Situation]]) -> Floats:
    """Return the covariance of what flags do to log(time) at two lists of sides."""
    codes, tables = dict[str, int](), list[tuple[list[int], list[int]]]()
    for name in sorted({name for values, _ in (*ones, *others) for name in values}):
        rows, columns = (
            [codes.setdefault(values.get(name, UNSET), len(codes)) for values, _ in sides] for sides in (ones, others)
        )
        tables.append((rows, columns))
    numbers = np.array([log2(n) if (n := number(value)) and n > 0 else np.nan for value in codes])
    same = np.nan_to_num(np.exp(-0.5 * ((numbers[:, None] - numbers[None, :]) / PER_VALUE) ** 2))
    np.fill_diagonal(same, 1.0)
    single, apart = np.zeros((len(ones), len(others))), np.zeros((len(ones), len(others)))
    for rows, columns in tables:
        single += (alike := same[np.ix_(rows, columns)])
        apart += alike < 1.0
    places = list(dict.fromkeys(where for _, where in (*ones, *others)))
    near = np.array([[_near(one, other) for other in places] for one in places])
    rows, columns = ([places.index(where) for _, where in sides] for sides in (ones, others))
    return np.asarray(near[np.ix_(rows, columns)] * (OF_A_FLAG**2 * single + OF_A_SET**2 * np.exp(-apart / SETS_APART)))
