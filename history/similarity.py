"""How alike two changes are: how much of what one brought carries over to another.  Knows no Django.

What a change brings is carried by what it does to the step.  The performance model prices both sides of a measured
change and of the case, and splits the logarithm of the speed-up among the terms of the step (`history.term_effects`);
two changes are alike as far as the same terms move by as much.  What the model got wrong of the measured change, it
gets wrong of the other as far as they are alike: that is what a record adds to a prediction.  A failure for want of
memory is alike as far as the memory is as full of the same here.  What cannot be priced is compared by its labels
(`history.labels`), and then only changes of the same model.  Sources of the numbers: docs/history.md,
`evaluation.transfer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log2
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from formatting import plain
from history import term_effects
from history.case import Case
from history.labels import (
    BOUND,
    CAPPED,
    OTHER_ARCHITECTURE,
    OTHER_BOTTLENECK,
    OTHER_KIND,
    OTHER_VENDOR,
    can_make,
    chip_likeness,
    length_ratio,
    move_likeness,
    same_start,
    situation_likeness,
    vector,
)
from history.moves import SETTINGS, STEPS
from history.record import NO_CHANGE
from history.term_effects import TERMS, TermEffects
from history.uncertainty import spread
from perfmodel.chips import load_chips
from perfmodel.config import ExperimentConfig, Hardware, framework_of

Floats = npt.NDArray[np.float64]

#: Measured (`evaluation.transfer`; both halves of the families agree).  Distance of the terms of two changes, in
#: logarithms of the step time, from which they have little to do with each other; and below which nothing acts.
LENGTH, FAINT = 0.15, 0.03
#: What the model does not explain of an effect carries over to what is nearly the same only: as likeness to this power.
UNEXPLAINED = 8
#: Each doubling of the peak between chips of one vendor, beyond what their numbers tell: measured between the A100 and
#: the H100, of which programs and generation differ.
PER_DOUBLING_OF_PEAK = 0.87
#: Each doubling of the model's size, beyond what its shape tells.  Judged: the sweeps hold models within 30 times.
PER_DOUBLING_OF_SIZE = 0.95
#: How far repeated runs and the model's own errors may move an effect, in logarithms.
REPEATED = 0.1
#: Standard deviations on either side of an 80 % interval.
Z80 = NormalDist().inv_cdf(0.9)
#: Likeness of two moves from which they are one, where nothing else tells what they do.
SAME_MOVE = 0.9
#: Bottlenecks that no term of the model names.
UNPRICED = ("input", "host")
#: Failures that may be for want of memory: sources do not always tell them from crashes.
OF_MEMORY = ("out_of_memory", "other")
#: Terms that move the step by less are not worth saying.
WORTH_SAYING = 0.01


@dataclass(frozen=True)
class Expected:
    """A measured change's effect as expected in another case: speed-up per token, and the 80 % interval."""

    speedup: float
    low80: float
    high80: float


@dataclass(frozen=True)
class Alike:
    """likeness: 0–1; reason: what decided it, in one line; expected: the effect re-scaled to the case, None where the
    record failed or the case changes nothing."""

    likeness: float
    reason: str
    expected: Expected | None


def rate(theirs: Sequence[Case], ours: Case) -> list[float]:
    """Likeness of every record to a case.

    A case without a move is a run without a proposal: what it is compared with is the record's own move, made here.
    """
    return [similarity for similarity, _ in _rated(theirs, ours)]


def likeness(theirs: Case, ours: Case) -> float:
    return rate([theirs], ours)[0]


def most_similar(theirs: Sequence[Case], ours: Case, most: int | None = None) -> list[tuple[int, Alike]]:
    """What is shown beside a case: those above the bound with their places, the most alike first."""
    rated = _rated(theirs, ours)
    shown = sorted((n for n, (value, _) in enumerate(rated) if value >= BOUND), key=lambda n: -rated[n][0])[:most]
    return [
        (n, Alike(rated[n][0], _reason(theirs[n], rated[n][1]), _expected(theirs[n], rated[n][1], rated[n][0])))
        for n in shown
    ]


def _rated(theirs: Sequence[Case], ours: Case) -> list[tuple[float, Case]]:
    """Likeness of each, and the case that it was compared with."""
    if not ours.directed:
        return [(0.0, ours)] * len(theirs)
    cases = [ours] * len(theirs) if ours.move else making(theirs, ours)
    return [
        (0.0, ours) if case is None else (_case_similarity(one, case), case)
        for one, case in zip(theirs, cases, strict=True)
    ]


def making(theirs: Sequence[Case], ours: Case) -> list[Case | None]:
    """The run with each of the moves as its own; None where it could not make it."""
    keys = [_move_key(one) if _can_make(one, ours) else None for one in theirs]
    start = ours.before
    if start is None:
        return [
            None if key is None else _case_after_move(ours, one, None, None)
            for one, key in zip(theirs, keys, strict=True)
        ]
    moves = {key: one for one, key in zip(theirs, keys, strict=True) if key is not None}
    reached = {key: term_effects.applied(start, one.move, _policies_after(one)) for key, one in moves.items()}
    made = {key: after for key, after in reached.items() if after is not None}
    priced = dict(zip(made, term_effects.price([(start, after) for after in made.values()]), strict=True))
    return [
        None if key is None or priced.get(key) is None else _case_after_move(ours, one, made[key], priced[key])
        for one, key in zip(theirs, keys, strict=True)
    ]


def _can_make(theirs: Case, ours: Case) -> bool:
    if not theirs.directed or chip_likeness(theirs.chip, ours.chip) <= OTHER_KIND:
        return False
    return can_make(theirs.move, theirs, ours)


def _move_key(theirs: Case) -> tuple[object, ...]:
    return (*sorted(theirs.move.items()), *sorted(_policies_after(theirs).items()))


def _case_after_move(
    ours: Case, theirs: Case, after: ExperimentConfig | None, move_mechanism: TermEffects | None
) -> Case:
    return replace(ours, move=theirs.move, flags=theirs.flags & ours.flags, after=after, mechanism=move_mechanism)


def _policies_after(case: Case) -> Mapping[str, str]:
    """Policies after a record's change."""
    return {} if case.after is None else {key: str(getattr(case.after.training, key)) for key in SETTINGS}


def _case_similarity(theirs: Case, ours: Case) -> float:
    flags = theirs.flags | ours.flags
    if not theirs.directed or not theirs.move or (flags and not theirs.flags & ours.flags):
        return 0.0
    if theirs.failure:
        return _failed_alike(theirs, ours)
    if ours.failure:
        return 0.0
    priced = _priced(theirs, ours)
    similarity = _by_label(theirs, ours) if priced is None else _by_terms(theirs, ours, *priced)
    return similarity if theirs.gain is None or ours.gain is None else similarity * _agreement(theirs.gain, ours.gain)


def _by_terms(theirs: Case, ours: Case, one: TermEffects, other: TermEffects) -> float:
    """Of what can be priced: as far as the same terms move by as much, and explain what was measured."""
    if other.fits < 0.5:
        return 0.0
    similarity = _raw(theirs, ours, one, other)
    # Where the terms do not explain what was measured, something else acted, which only nearly the same run shares.
    explained = 1.0 if theirs.gain is None else _agreement(theirs.gain, one.gain)
    gain = _shifted(theirs, one, other, similarity)
    similarity *= explained + (1.0 - explained) * similarity**UNEXPLAINED
    if theirs.gain is not None and theirs.gain * gain < 0.0 and min(abs(theirs.gain), abs(gain)) > NO_CHANGE:
        return 0.0  # it would come out the other way round here
    return similarity


def _priced(theirs: Case, ours: Case) -> tuple[TermEffects, TermEffects] | None:
    """What both changes do to the step; None where that is not known, as of XLA flags alone, which have no term."""
    if theirs.mechanism is None or ours.mechanism is None or _flags_alone(theirs) or _flags_alone(ours):
        return None
    return theirs.mechanism, ours.mechanism


def _flags_alone(case: Case) -> bool:
    return set(case.move) == {"xla_flags"}


def _raw(theirs: Case, ours: Case, one: TermEffects, other: TermEffects) -> float:
    """Likeness of what two changes do, whatever was measured of them."""
    return 1.0 if _repeats(theirs, ours) else _same_terms(one, other) * _situation(theirs, ours)


def _shifted(theirs: Case, one: TermEffects, other: TermEffects, raw: float) -> float:
    """The predicted gain of ours, shifted by what the prediction of theirs missed as far as both do the same."""
    missed = 0.0 if theirs.gain is None else theirs.gain - one.gain
    return other.gain + raw**UNEXPLAINED * missed


def _repeats(theirs: Case, ours: Case) -> bool:
    """Whether it is the same change of the same run: nothing that is known of both differs."""
    return theirs.move == ours.move and theirs.flags == ours.flags and same_run(theirs, ours)


def same_run(theirs: Case, ours: Case) -> bool:
    """Whether two changes start from the same run: nothing that is known of both differs before them."""
    if not same_start(theirs, ours):
        return False
    if theirs.before is not None and ours.before is not None:
        one, other = theirs.before, ours.before
        frameworks = {framework for config in (one, other) if (framework := framework_of(config))}
        if _differ(one.hardware, other.hardware) or one.mesh.dcn_product != other.mesh.dcn_product:
            return False
        if len(frameworks) > 1:
            return False
        if any(getattr(one.training, key) != getattr(other.training, key) for key in ("virtual_stages", "optimizer")):
            return False
    return all(_same_policy(key, theirs, ours) for key in SETTINGS)


def _differ(one: Hardware, other: Hardware) -> bool:
    """Overrides are a site's own, which records do not state; a number of chips alone is no topology."""
    shapes = {hardware.topology for hardware in (one, other) if len(hardware.topology) > 1}
    return (one.chip, one.chips, one.slices) != (other.chip, other.chips, other.slices) or len(shapes) > 1


def _same_terms(one: TermEffects, other: TermEffects) -> float:
    """1 where the same terms move by as much, of steps that are made of the same.

    Less for the distance between what moves, for their ratio where both are small, and for what else the steps are made
    of: a tenth saved of the one term that matters is not a tenth saved of one among others.
    """
    a, b = one.terms, other.terms
    apart, whole = float(np.square(a - b).sum()), float(a @ a + b @ b)
    same = exp(-apart / LENGTH**2) * max(0.0, 2.0 * float(a @ b) / (whole + FAINT**2))
    return same * _cosine(one.shares, other.shares)


def _agreement(one: float, other: float) -> float:
    """Of two logarithms of a speed-up: 1 where they are the same, 0 where they are opposite."""
    squares = one**2 + other**2 + REPEATED**2
    return max(0.0, (2.0 * one * other + REPEATED**2) / squares)


def _situation(theirs: Case, ours: Case) -> float:
    """What the model does not know: what else there is about the chip and about experts, what keeps a run waiting that
    no term names, which policy a change starts from, and what else the direction of a move brings."""
    if any(theirs.move.get(key) and not _same_policy(key, theirs, ours) for key in SETTINGS):
        return 0.0
    waits = {case.bottleneck for case in (theirs, ours) if case.bottleneck in UNPRICED}
    waiting = OTHER_BOTTLENECK if waits and theirs.bottleneck != ours.bottleneck else 1.0
    experts = OTHER_ARCHITECTURE if {theirs.mixture, ours.mixture} == {True, False} else 1.0
    size = 1.0
    if theirs.parameters and ours.parameters:
        size = PER_DOUBLING_OF_SIZE ** abs(log2(theirs.parameters / ours.parameters))
    return _chips(theirs.chip, ours.chip) * size * waiting * experts * _direction(theirs.move, ours.move)


def _chips(one: str, other: str) -> float:
    similarity = chip_likeness(one, other)
    if not OTHER_VENDOR < similarity < 1.0:
        return similarity
    peaks = [load_chips()[chip].peak("bf16") for chip in (one, other)]
    return float(PER_DOUBLING_OF_PEAK ** abs(log2(peaks[0] / peaks[1])))


def _same_policy(key: str, theirs: Case, ours: Case) -> bool:
    """Whether both start from as much recomputation, sharding or precision, where both say."""
    one, other = theirs.settings.get(key), ours.settings.get(key)
    return not one or not other or STEPS[key].get(one) == STEPS[key].get(other)


def _direction(theirs: Mapping[str, float], ours: Mapping[str, float]) -> float:
    """1 for moves of one direction, less for an angle between them; how far they go, the terms tell."""
    one, other = vector(ours)[None, :], vector(theirs)[None, :]
    length = float(length_ratio(one, other)[0, 0])
    return float(move_likeness(one, other * length)[0, 0])


def _failed_alike(theirs: Case, ours: Case) -> float:
    """Of a run that failed: for want of memory, where the model has it, as far as ours is as full of the same.

    A failure of another kind says something of the very same run alone.
    """
    if ours.gain is not None:
        return 0.0
    one, other = theirs.mechanism, ours.mechanism
    if one is None or one.fits >= 0.5 or theirs.failure not in OF_MEMORY:
        return 1.0 if _repeats(theirs, ours) else 0.0
    if other is None:
        return 0.0
    runs_out = min(1.0, (1.0 - other.fits) / (1.0 - one.fits))
    added = _cosine(one.memory - one.memory_before, other.memory - other.memory_before)
    return _situation(theirs, ours) * max(0.0, added) * _cosine(one.memory, other.memory) * runs_out


def _cosine(one: Floats, other: Floats) -> float:
    norm = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / norm if norm else 0.0


def _by_label(theirs: Case, ours: Case) -> float:
    """Of what cannot be priced: the same move of the same run, or of the same model with sequences of about the same
    length."""
    if _repeats(theirs, ours):
        return 1.0
    move = float(move_likeness(vector(ours.move)[None, :], vector(theirs.move)[None, :])[0, 0])
    similarity = situation_likeness(theirs, ours) * move
    one, other = theirs.seq_len, ours.seq_len
    near = bool(one and other and max(one, other) < 2.0 * min(one, other))
    same = bool(theirs.model_name) and theirs.model_name == ours.model_name and near
    return similarity if move >= SAME_MOVE and (same_start(theirs, ours) or same) else min(similarity, CAPPED)


def expected(theirs: Case, ours: Case) -> Expected | None:
    """The effect of a record, re-scaled to a case; None where nothing was measured or the record's move cannot be made
    here."""
    value, case = _rated([theirs], ours)[0]
    return _expected(theirs, case, value)


def _expected(theirs: Case, ours: Case, value: float) -> Expected | None:
    if theirs.gain is None or not ours.move or not theirs.move:
        return None
    gain, sigma = carried(theirs, ours, value)
    return Expected(exp(gain), exp(gain - Z80 * sigma), exp(gain + Z80 * sigma))


def carried(theirs: Case, ours: Case, value: float) -> tuple[float, float]:
    """Logarithm of the speed-up expected of a measured change in a case so much alike, and its standard deviation.

    What the model predicts here, shifted by what it missed of the record as far as both do the same.  Without prices
    the effect itself is carried over: of a shorter move as much less, of a longer one no more than was measured.
    """
    assert theirs.gain is not None
    priced = _priced(theirs, ours)
    if priced is None:
        length = float(length_ratio(vector(ours.move)[None, :], vector(theirs.move)[None, :])[0, 0])
        return theirs.gain * value * min(1.0, length), spread(value, priced=False)
    one, other = priced
    # Not by the likeness, which already holds how little the terms explain: counted twice, the effect would be lost.
    return _shifted(theirs, one, other, _raw(theirs, ours, one, other)), spread(value)


def reason(theirs: Case, ours: Case) -> str:
    """What decided, in one line: which terms of the step change there and here; of a failure how full the memory is."""
    return _reason(theirs, _rated([theirs], ours)[0][1])


def _reason(theirs: Case, ours: Case) -> str:
    where = "" if theirs.chip == ours.chip else f" on {theirs.chip}"
    if _repeats(theirs, ours):
        return "the same run and change"
    priced = _priced(theirs, ours)
    if priced is None:
        same = theirs.model_name or "the same run"
        why = "the model has no term for XLA flags" if _flags_alone(theirs) else "too few facts are known to price it"
        return f"the same change{where} of {same}; not priced: {why}"
    if theirs.failure:
        there, here = (plain(of.fill, "share", "predicted") for of in priced)
        return f"memory {there} full there{where}, as predicted, {here} here"
    return f"same terms change{where}: {_terms_in_words(*priced)}"


def _terms_in_words(theirs: TermEffects, ours: TermEffects) -> str:
    """`pipeline bubble −12 % of the step (here −10 %), tensor-parallel communication +5 % (+6 %); memory 71 % full`."""
    order = np.argsort(-np.maximum(np.abs(theirs.terms), np.abs(ours.terms)))
    names = list(TERMS)
    shown = [n for n in order[:2] if max(abs(theirs.terms[n]), abs(ours.terms[n])) >= WORTH_SAYING]
    if not shown:
        return "none by 1 % of the step or more (predicted)"
    parts = []
    for place, n in enumerate(shown):
        of, here = ("of the step ", "here ") if not place else ("", "")
        parts.append(f"{names[n]} {_signed(-theirs.terms[n])} {of}({here}{_signed(-ours.terms[n])})")
    return f"{', '.join(parts)}; memory {plain(ours.fill, 'share', 'predicted')} full here"


def _signed(value: float) -> str:
    return f"{100.0 * value:+.0f} %".replace("-", "−").replace("+0 %", "0 %").replace("−0 %", "0 %")
