"""MFU of published runs by chip, for the answer to *what do others reach*: `python -m evaluation.published_mfu`.

Writes proposals/agents/tools/published_mfu.json; every run under the performance model's one convention of MFU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import proposals.agents.tools as tools
from evaluation.published import load_published
from perfmodel.accounting import parameters
from perfmodel.prediction import predict

FILE = Path(tools.__file__).with_name("published_mfu.json")


def rows() -> dict[str, list[dict[str, Any]]]:
    """Runs by chip, highest MFU (0 to 1) first."""
    by_chip: dict[str, list[dict[str, Any]]] = {}
    for run in load_published().runs:
        made = predict(run.config)
        if made.mfu is None or made.step_time_s is None:
            continue
        training = run.config.training
        by_chip.setdefault(run.config.hardware.chip, []).append(
            {
                "id": run.id,
                "model": run.shape.name,
                "parameters": parameters(run.shape).total,
                "chips": run.config.hardware.chips,
                "precision": training.precision,
                "seq_len": training.seq_len,
                "mfu": round(made.mfu * made.step_time_s["estimate"] / run.step_time_s, 4),
                "source": run.row["source_repo"],
            }
        )
    return {chip: sorted(each, key=lambda row: -row["mfu"]) for chip, each in sorted(by_chip.items())}


def main() -> None:
    lines = [f'"{chip}": [\n' + ",\n".join(json.dumps(row) for row in each) + "\n]" for chip, each in rows().items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
