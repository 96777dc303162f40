"""Check whether measured effects of flags hold elsewhere: `python -m evaluation.effects` writes docs/effects.md.

Kept apart: the trials of JAX on Llama 3.1 8B, a stack drawn before anything was fitted; constants were fitted on the
others.  Beside it every stack is kept apart in turn.  The naive baseline says that no flag does anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from statistics import median

from evaluation.report import wrapped
from history import moves
from history.effects import ANOTHER_DAY, REPEATS, Effects, FlagEffect, FlagTrial, Situation, trials_of
from history.seeds import records

PAGE = Path(__file__).parents[1] / "docs" / "effects.md"
CHIP, KEPT_APART = "v6e", ("jax", "llama3.1-8b")


@dataclass(frozen=True)
class ExpectedTrial:
    """A trial, and what the others let expect of it.  effect: None where they say nothing."""

    trial: FlagTrial
    ratio: float
    effect: FlagEffect | None

    @property
    def measured(self) -> float:
        return exp(self.trial.log_ratio)

    @property
    def noise(self) -> float:
        """Return what repeats of its stack differ by, on the same day or another."""
        return (moves.number(self.trial.record.before.kpis.get("repeat_spread")) or REPEATS) + ANOTHER_DAY

    @property
    def is_beyond_noise(self) -> bool:
        return abs(self.measured - 1.0) > self.noise

    @property
    def has_sign(self) -> bool:
        return (self.ratio - 1.0) * (self.measured - 1.0) > 0.0


def kept_apart(stack: tuple[str, str]) -> list[ExpectedTrial]:
    """Return the trials of a stack as those of all others let expect them."""
    every = trials_of(records(), CHIP)
    trials = [trial for trial in every if trial.where.stack == stack and trial.record.speedup]
    others = Effects((trial.record for trial in every if trial.where.stack != stack), CHIP)
    expected = others.expected([(trial.before, trial.after, trial.where) for trial in trials])
    written = [(one.record.before.training["xla_flags"], one.record.after.training["xla_flags"]) for one in trials]
    effects = [others.of(*flags, trial.where) for flags, trial in zip(written, trials, strict=True)]
    told = zip(trials, expected, effects, strict=True)
    return [ExpectedTrial(trial, exp(mean), effect) for trial, (mean, _), effect in told]


def stacks() -> list[tuple[str, str]]:
    return sorted({trial.where.stack for trial in trials_of(records(), CHIP) if trial.record.speedup})


def score(rows: Sequence[ExpectedTrial]) -> list[str]:
    """Return cells: trials, beyond the noise, sign right, median errors of all and of those beyond it, both naive."""
    beyond = [row for row in rows if row.is_beyond_noise]
    right = f"{sum(row.has_sign for row in beyond)} of {len(beyond)}"
    cells = [str(len(rows)), right]
    for some in (rows, beyond):
        for errors in ([abs(row.ratio / row.measured - 1.0) for row in some], [abs(1 / r.measured - 1) for r in some]):
            cells.append(f"{median(errors):.2%}".replace("%", " %") if errors else "–")
    return cells


def offered() -> list[str]:
    """Return rows of what is proposed for Llama 3.1 70B in MaxText on v6e, FSDP alone, with other flags or lengths."""
    effects, by_id = Effects(records(), CHIP), {record.id: record for record in records()}
    recipe, tuned = (by_id[f"trial-{key}"].after for key in ("jx-l3-0426-e12", "cx-q3-0604-v110"))
    starts = [("none", ()), ("MaxText's recipe", recipe.training["xla_flags"]),
              ("the Qwen stack before", tuned.training["xla_flags"])]  # fmt: skip
    rows = []
    for name, flags in starts:
        for length in (8192, 4096, 1024):
            where = Situation(CHIP, ("maxtext", "llama3.1-70b"), float(length), frozenset(("data",)))
            sets = effects.offers(flags, where)
            for written, effect in sets:
                first, *more = [flag.lstrip("-") for flag in written if flag not in flags]
                what = f"`{first}`" + (f" and {len(more)} more" if more else "")
                cells = (name, f"{length:,}", what, f"{effect.ratio:.3f} ({effect.low80:.3f}–{effect.high80:.3f})",
                         f"{effect.measured:.3f}", len(effect.trials), effect.whole, effect.stacks)  # fmt: skip
                rows.append(f"| {' | '.join(map(str, cells))} |")
            if not sets:
                rows.append(f"| {name} | {length:,} | nothing | – | – | – | – | – |")
    return rows


def page() -> str:
    """Return docs/effects.md."""
    held = kept_apart(KEPT_APART)
    every = {stack: kept_apart(stack) for stack in stacks()}
    together = [row for rows in every.values() for row in rows]
    claimed = [row for row in held if row.effect]
    parts = [
        ("**kept apart**", held), ("of these, with an effect", claimed),
        *((" ".join(stack), rows) for stack, rows in every.items() if stack != KEPT_APART),
        ("every stack in turn", together), ("of these, with an effect", [row for row in together if row.effect]),
    ]  # fmt: skip
    beyond = [row for row in together if row.is_beyond_noise]
    slower = sum(row.measured > 1.0 for row in beyond)
    wrong = [row for row in together if row.effect and row.is_beyond_noise and not row.has_sign]
    return wrapped(f"""# Measured effects of XLA flags

Written by `python -m evaluation.effects` from {len(together)} timed trials of {len(every)} stacks (program and model) \
on v6e. A trial is a record of the history that changed flags alone (`history/seeds/trials.json`: a public research \
wiki on TPU training, MIT licence, one page per record). The estimate is `history/effects.py`.

## How an effect is estimated

- The logarithm of a trial's time ratio is the difference of one function of flags and situation at its two sides: a
  Gaussian process, the sum of a part for each flag and one for the whole set. Setting a flag and dropping it are one
  thing with two signs; a part tells of the whole; in another set, another stack or sequences of another length a trial
  counts for less, and the estimate shrinks towards none.
- Noise: what repeats of the stack differ by (0.3 to 1 %), shared by trials that were compared with one baseline, and
  what another day adds.
- An effect needs at least two trials of the set, its reverse or parts of it, which together touch every flag of it. \
All others have no effect and are no proposal; the tool `flags` names them as untested.
- A set is proposed where it is likely to gain (0.7 or more), by 1 % or more, and its median trial gained by as much.
- Older names of one thing are one: a windowed-einsum threshold beyond any size is collective matmul off.

## Kept apart

The rule, stated before any constant was fitted: the stack of JAX and Llama 3.1 8B is kept apart, the others are \
fitted (marginal likelihood, then rounded). Two choices were made with its trials in view: that the older flag's low \
threshold means *always*, and from which chance a set is offered. *Naive* says that no flag does anything. *Sign \
right* counts the trials beyond the noise, and one of which nothing is known counts by the little that any change \
costs: {slower} of the \
{len(beyond)} trials beyond the noise are slower, so *always slower* is the baseline of the sign.

| trials | number | sign right | error, median | naive | error beyond noise, median | naive |
|---|---:|---:|---:|---:|---:|---:|
{chr(10).join("| " + " | ".join((name, *score(rows))) + " |" for name, rows in parts)}

Beyond the noise with an effect and the wrong sign: {_named(wrong)}.

## What is proposed

For Llama 3.1 70B in MaxText on v6e, FSDP alone: expected time ratio with its 80 % interval, that of the median trial, \
trials in all, of the whole set, and stacks.

| flags set now | sequence | set | expected | measured | trials | whole | stacks |
|---|---:|---|---:|---:|---:|---:|---:|
{chr(10).join(offered())}

## What this does not show

- One kind of chip, eight of them or fewer, FSDP, dense models of 4 to 8 billion parameters. On other chips no set of
  flags has two trials in the history, so none is proposed there; nor on GPUs.
- Sequences of 1,024 tokens were measured for asynchronous collective fusion alone, where it lost 13 to 26 %; SparseCore
  offload was measured at 8,192 only, and is not offered far from there.
- The share of the step that a collective exposes is not in the source, so it is no condition of an effect.
""")


def _named(rows: Sequence[ExpectedTrial]) -> str:
    return "; ".join(f"{row.trial.record.id} ({row.measured:.3f}, expected {row.ratio:.3f})" for row in rows) or "none"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
