"""One price: the same configuration under the same evidence, asked through every entry, as a table.

`python -m evaluation.one_price CONFIG...` prints a row per entry and exits with 1 where two disagree.  Entries: `asap
predict` and its REST form, `asap search`, an own mesh among the proposals, the proposals themselves, Explore, the space
of a campaign, a trial of the model, and the run on another number of chips (asked for as many as it has).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from asapweb.explore.spaces import meshes_of
from campaigns.backends.modelled import Modelled
from campaigns.engine.space import key_of, searched
from diagnosis.analyzer import diagnose
from experiments.step_profile import StepProfile
from perfmodel.chips import load_chips
from perfmodel.config import ConfigError, ExperimentConfig, Mesh, config_key
from perfmodel.config_file import read_config
from perfmodel.price import Evidence, predict
from perfmodel.search import search
from perfmodel.space import SearchBounds
from proposals.agents.tools.hardware import fastest
from proposals.candidate import Candidate, candidate
from proposals.plan import Predicted
from proposals.proposer import Pricer
from proposals.proposer.observed import start

#: Relative difference of two numbers that are the same.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Price:
    """The price by one entry, in seconds and bytes; None where the entry does not give it.  legal: breaks no rule."""

    entry: str
    step_time_s: float | None = None
    low80_s: float | None = None
    high80_s: float | None = None
    memory_bytes: float | None = None
    legal: bool | None = None

    def differs(self, other: Price) -> list[str]:
        """Return the names of what both say and say differently."""
        names = [name for name in self.__dataclass_fields__ if name != "entry"]
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        return [
            name for name, one, two in pairs
            if None not in (one, two) and abs(one - two) > ROUNDING * max(abs(one), abs(two))
        ]  # fmt: skip


def prices(config: ExperimentConfig, of: Candidate, profile: StepProfile | None = None) -> Iterator[Price]:
    """Yield the price of a candidate of a run by every entry that can be asked for it.

    profile: of the run; None for the step time of its configuration, or for nothing measured.
    """
    ran = profile or start(config)
    pricer = Pricer(ran, config, diagnose(ran, config))
    evidence = pricer.evidence
    asked = replace(candidate(config, of), measured=None)
    yield _predicted("predict", predict(asked, evidence))
    own = pricer.evaluate(of)
    yield _plan("own mesh", own.predicted, not own.violations)
    for proposal in pricer.propose().proposals:
        if config_key(candidate(config, proposal)) == config_key(asked):
            yield _plan(f"proposal {proposal.rank}", proposal.predicted, True if proposal.kind != "keep" else None)
    by_search = _searched(asked, evidence)
    if by_search is not None:
        yield by_search
    yield from _explored(asked, evidence)
    yield from _campaign(config, asked, evidence)
    hardware = config.hardware
    if "topology" not in of.changes:
        chip = load_chips()[hardware.chip]
        one = fastest(config, evidence, chip, hardware.chips, of.changes, dict(asked.mesh.ici))
        yield _predicted("other hardware", one.prediction)


def _predicted(entry: str, prediction: Any) -> Price:
    step, used = prediction.step_time_s or {}, prediction.hbm_per_chip_bytes or {}
    return Price(
        entry, step.get("estimate"), step.get("low80"), step.get("high80"), used.get("total"),
        not prediction.violations,
    )  # fmt: skip


def _plan(entry: str, predicted: Predicted, legal: bool | None) -> Price:
    step, used = predicted.step_time_s, predicted.hbm_per_chip_bytes
    return Price(
        entry, step.estimate if step else None, step.low80 if step else None, step.high80 if step else None,
        used.total if used else None, legal,
    )  # fmt: skip


def _searched(asked: ExperimentConfig, evidence: Evidence) -> Price | None:
    """Return the row of a search over the axes of the mesh; None where it lists none, since a rule is broken."""
    axes = tuple(axis for axis, _ in asked.mesh.ici)
    found = search(asked, 10**6, SearchBounds(axes=axes), evidence if evidence.is_measured else Evidence())
    for item in found.candidates:
        if config_key(item.config) == config_key(asked):
            return _predicted("search", item.prediction)
    return Price("search", legal=False)


def _explored(asked: ExperimentConfig, evidence: Evidence) -> Iterator[Price]:
    meshes = meshes_of(asked, evidence if evidence.is_measured else Evidence())
    row = meshes.space.row_of(asked.mesh)
    if row is not None:
        legal = bool(meshes.broken[row] < 0)
        yield Price("Explore", float(meshes.estimate_s[row]), memory_bytes=float(meshes.memory_bytes[row]), legal=legal)


def _campaign(config: ExperimentConfig, asked: ExperimentConfig, evidence: Evidence) -> Iterator[Price]:
    known = evidence if evidence.is_measured else Evidence()
    space = searched(config, evidence=known)
    for row, each in enumerate(space.candidates.configs):
        if key_of(each) == key_of(asked):
            yield Price(
                "campaign", float(space.candidates.time_s[row]), memory_bytes=float(space.candidates.peak_bytes[row])
            )
            break
    outcome = Modelled(known).measure(asked, lambda: False)
    if outcome.step_times_s:
        yield Price("modelled trial", outcome.step_times_s[0], memory_bytes=outcome.peak_bytes)


def disagreements(rows: list[Price]) -> list[str]:
    """Return a sentence for every entry that says something else than the first."""
    first = rows[0]
    return [f"{row.entry}: {', '.join(names)}" for row in rows[1:] if (names := first.differs(row))]


def main(paths: list[str]) -> int:
    """Print the table of every configuration: of the run itself, and of its first proposals."""
    wrong = 0
    for path in paths:
        config, _ = read_config(Path(path))
        print(f"\n{path}: {config.mesh.text()}")
        ran = start(config)
        listed = [Candidate(config.mesh.to_json())]
        plan = Pricer(ran, config, diagnose(ran, config)).propose()
        listed += [Candidate(item.mesh, item.changes) for item in plan.proposals]
        for of in listed:
            try:
                rows = list(prices(config, of))
            except ConfigError as error:
                print(f"  {of}: {error}")
                continue
            print(f"  {Mesh(tuple(of.mesh['ici'].items())).text()} {dict(of.changes) or ''}")
            for row in rows:
                numbers = (row.step_time_s, row.low80_s, row.high80_s, row.memory_bytes and row.memory_bytes / 1e9)
                texts = [f"{value:10.4g}" if value is not None else " " * 9 + "–" for value in numbers]
                print(f"    {row.entry:16}{''.join(texts)}  {row.legal}")
            for sentence in disagreements(rows):
                wrong += 1
                print(f"    DIFFERS {sentence}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
