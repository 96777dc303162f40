"""Answers for `evaluation.checked_numbers` where no recording is at hand: the graded answers of language models that
ship, each with the results that tools return of its run today.

    python -m evaluation.rebuilt_dialogues dialogues.json

Only runs that the repository holds count: configurations of questions, and samples.  Every tool that needs no argument
is called, the proposals one by one, `predict` for each mesh that question or answer names.  The model's first tries and
its own calls are not known, so complaints are of final answers, some of them for want of a result.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent.tools import Tool
from evaluation.quality.evidence import LOOKED_AT, returned
from evaluation.steps.shipped import sample
from experiments.without_profile import without_profile
from perfmodel.config_file import read_config
from proposals.agents import notation
from proposals.agents.filling import fill
from proposals.agents.notation import Knows
from proposals.agents.tools import all_tools
from proposals.agents.workbench import Workbench

QUESTIONS = Path(__file__).with_name("questions")
SAMPLES = {
    "sample_asap_paper_experiment_1_comput": "asap-experiment-1",
    "sample_asap_paper_experiment_2_hbm_bo": "asap-experiment-2",
    "sample_asap_paper_experiment_3_commun": "asap-experiment-3",
    "sample_small_transformer_on_8_cpu_dev": "cpu-data8",
}  # fmt: skip
#: Meshes that are priced for one message.
MOST = 6


def dialogues() -> Iterator[dict[str, Any]]:
    benches: dict[str, Workbench] = {}
    for name in ("fresh_graded.json", "endpoint_graded.json"):
        for item in json.loads((QUESTIONS / name).read_text("utf-8")):
            text = item.get("endpoint", item).get("answer", "")
            run = item["run"]
            of = benches.get(run) or _bench(run)
            if not text or of is None:
                continue
            benches[run] = of
            asked = [*item["before"], item["text"]]
            results = list(_results(of, " ; ".join([*asked, text])))
            earlier = [part for message in item["before"] for part in (message, "")]
            yield {
                "id": item["id"], "message": name, "question": item["text"], "earlier": earlier, "results": results,
                "tries": [{"text": text, "after_results": len(results)}], "final": text,
            }  # fmt: skip


def _bench(run: str) -> Workbench | None:
    path = QUESTIONS / "configs" / f"{run}.json"
    if path.exists():
        config = read_config(path)[0]
        return Workbench.of_values(without_profile(config), config)
    return Workbench.of_values(*sample(SAMPLES[run])) if run in SAMPLES else None


def _results(of: Workbench, text: str) -> Iterator[dict[str, Any]]:
    tools = all_tools(of)
    plain = [(name, {}) for name, tool in tools.items() if not _required(tool)]
    calls: list[tuple[str, dict[str, Any]]] = [*plain, *(call for call in LOOKED_AT if call not in plain)]
    for sizes in notation.read(text, Knows(of.config)).of("mesh")[:MOST]:
        whole = fill(sizes, of.config.mesh.to_json(), of.config.hardware.chips_per_slice, of.config.mesh)
        calls += [("predict", dict(mesh)) for mesh in whole.meshes[:1]]
    for number, (name, arguments) in enumerate(calls, 1):
        item = returned(tools, name, arguments, f"r{number}")
        yield {"name": name, "ok": item.ok, "arguments": item.arguments, "result": item.result}


def _required(tool: Tool) -> bool:
    return bool(tool.arguments is not None and tool.arguments.model_json_schema().get("required"))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(list(dialogues()), ensure_ascii=False), "utf-8")
