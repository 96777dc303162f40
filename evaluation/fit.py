"""`make fit`: fit the time model on all measured steps, predict rows it has not seen, and write what the product reads.

Writes perfmodel/efficiencies.toml, perfmodel/measured_runs.json, asapweb/explore/accuracy.json and docs/accuracy.md.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from evaluation import accuracy, accuracy_text
from evaluation.ablation import ablation
from evaluation.accuracy_numbers import ACCURACY_FILE, load_accuracy
from evaluation.fit_time import fitted, problem
from evaluation.held_out import Evaluation, held_out, summarise
from evaluation.ranges import errors_at, ranges
from evaluation.time_rows import load_rows
from evaluation.time_table import KINDS, table, write
from perfmodel.efficiency import EFFICIENCIES_FILE, SEEN_FILE, load_efficiencies


def evaluate() -> dict[str, Evaluation]:
    """The fit of each kind of chip with its out-of-fold predictions."""
    evaluations = {}
    for kind in KINDS:
        p = problem(load_rows(kind))
        evaluations[kind] = held_out(fitted(p, np.ones(len(p.rows), dtype=bool)))
    return evaluations


def main(arguments: list[str]) -> None:
    """`--ablate` takes every term out in turn as well, which takes minutes; without it the last ablation is kept."""
    evaluations = evaluate()
    errors = {kind: errors_at(one.rows, one.by_distance) for kind, one in evaluations.items()}
    write(EFFICIENCIES_FILE, table([one.whole for one in evaluations.values()], ranges(errors)))
    seen = summarise(row.config for one in evaluations.values() for row in one.rows)
    SEEN_FILE.write_text(json.dumps(seen, indent=0) + "\n", encoding="utf-8")
    load_efficiencies.cache_clear()
    kept = load_accuracy().ablation if ACCURACY_FILE.exists() else None
    tried = ablation([one.whole for one in evaluations.values()]) if "--ablate" in arguments else kept
    accuracy_text.write(accuracy.report(evaluations, tried))


if __name__ == "__main__":
    main(sys.argv[1:])
