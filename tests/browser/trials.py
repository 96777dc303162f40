"""Trials stored at once, for pools that no test could wait for."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from django.utils import timezone

from campaigns.models import Campaign, Trial
from tests.agent.server import Reply, answer

FAILURE = {
    "cause": "out_of_memory", "failure": "out_of_memory", "confidence": 0.93, "verdict": "forbid", "lines": 812,
    "sentence": "Out of memory: 12.4 GB were requested with 3.1 GB free.", "line": "RESOURCE_EXHAUSTED", "last": [],
}  # fmt: skip


def eager(body: dict[str, Any]) -> Reply:
    """A model that asks for a built-in candidate, without looking, and for one of other chips, as often as configured
    that there is none."""
    shown = json.loads(next(each for each in body["messages"] if each["role"] == "tool")["content"])["result"]
    third = shown["built_in_candidates"][2]
    wish = {"ici": third["mesh"]["ici"], "dcn": third["mesh"]["dcn"] or None, "changes": third.get("changes", {})}
    said = "Less of each layer crosses the slow links, and the matmuls stay large."
    return answer({"trials": [wish | {"reason": said}, {"ici": {"data": 3}, "reason": "It is faster."}]})


def many(campaign: Campaign, count: int, draw: np.random.Generator, failing: float = 0.2) -> None:
    now = timezone.now()
    meshes = [{"ici": {"data": d, "seq": 1, "model": 64 // d}, "dcn": {"data": 1}} for d in (1, 2, 4, 8, 16, 32, 64)]
    made = []
    for number in range(1, count + 1):
        fails = draw.random() < failing
        training = dict(campaign.config["training"]) | {
            "remat": str(draw.choice(["none", "minimal", "full"])), "grad_accum": int(draw.choice([1, 2, 4, 8])),
        }  # fmt: skip
        keys = ("global_batch", "grad_accum", "remat", "weight_sharding")
        made.append(
            Trial(
                campaign=campaign, number=number, key=f"drawn-{number}", mesh=meshes[int(draw.integers(7))],
                training={key: training[key] for key in keys}, status="failed" if fails else "done",
                why="Drawn for a test.", predicted_step_time_s=1.5, gain=0.01, faster=0.4, runs_probability=0.9,
                step_time_s=None if fails else float(np.exp(draw.normal(0.6, 0.4))), peak_bytes=None if fails else 7e10,
                mfu=None if fails else 0.41, failure=FAILURE if fails else None, runs=1,
                started_at=now, finished_at=now,
            )
        )  # fmt: skip
    Trial.objects.bulk_create(made, batch_size=1000)
    campaign.trials.filter(number=0).update(
        status="failed" if failing == 1.0 else "done", failure=FAILURE if failing == 1.0 else None,
        step_time_s=None if failing == 1.0 else 1.84, started_at=now, finished_at=now,
    )  # fmt: skip
    Campaign.objects.filter(pk=campaign.pk).update(status="done", reason=f"The budget of {count:,} trials is spent.")
