"""Every capability over several runs: it answers without error, begins with what it answers, and each number it
prints is one of a tool result of that very answer, rounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import pytest

from agent.events import Final, TextDelta, ToolReturned
from evaluation.quality.evidence import PROFILES, SAMPLES, bench
from experiments.without_profile import without_profile
from perfmodel.config_file import parse_config
from proposals.agents.capabilities import AREAS, AnswerContext, answer, arguments, registry
from proposals.agents.capabilities.as_tools import compute_tool
from proposals.agents.conversation import ConstraintStated, FactStated, MeshOffered, Question, Said
from proposals.agents.workbench import Workbench

pytestmark = pytest.mark.slow

CONFIG = {
    "hardware": {"chip": "h100", "topology": [8, 8]},
    "mesh": {"ici": {"data": 8, "model": 8}},
    "model": {"name": "llama3.1-8b"},
    "training": {"global_batch": 256, "seq_len": 4096},
}
#: Runs on which capabilities take the most ways of their own: a model with little in the profile, and two profiles
#: without a model.
EVERYWHERE = ("only the five largest ops, memory", "asap-experiment-1", "asap-experiment-2")
#: One of these beside them, in turn, and those on which a capability says what it says on no other.
IN_TURN = tuple(name for name in dict.fromkeys((*SAMPLES, *PROFILES)) if name not in EVERYWHERE)
ALONE = {
    "dcn": ("gradients over DCN",), "change_mind": ("cpu-data8",), "roofline": ("cpu-data8",),
    "bandwidth": ("cpu-data8",), "chips_for_time": ("tensor axis across NVLink domains",),
    "op": ("cpu-data2-seq2-model2", "gradients over DCN"), "accuracy": ("cpu-data2-seq2-model2",),
    "modules": ("cpu-data2-seq2-model2",), "change_chips": ("gradients over DCN",),
}  # fmt: skip
CASES = [
    (run, key)
    for number, key in enumerate(registry())
    for run in (*EVERYWHERE, *ALONE.get(key, (IN_TURN[number % len(IN_TURN)],)))
]
#: A value where a capability has nothing to compute without one.
FILLED: dict[str, dict[str, Any]] = {
    "cost": {"usd_per_chip_hour": 2.7, "tokens": 1e12}, "training_time": {"tokens": 3e11},
    "change_chip": {"chip": "v5p"}, "chips_for_time": {"step_time_s": 0.5}, "one_axis": {"axis": "tensor"},
    "combine": {"proposals": [1, 2]}, "price_mesh": {"proposal": 2}, "why_not": {"remat": "none"},
    "hold": {"keep_batch": True}, "knowledge": {"text": "When is FSDP bound by the interconnect?"},
    "history": {"text": "long context"}, "explain_figure": {"text": "the MFU"}, "result": {"step_time_s": 2.0},
    "change_precision": {"precision": "fp8"}, "doubt": {"finding": 1}, "findings": {"finding": 1},
    "launch": {"tool": "megatron"}, "legal": {"mesh": "data=2"}, "change_batch": {"batch": 64},
}  # fmt: skip
_UNITS = {
    "ms": 1e-3, "µs": 1e-6, "us": 1e-6, "ns": 1e-9, "s": 1.0, "min": 60.0, "h": 3600.0, "%": 1e-2, "kB": 1e3, "MB": 1e6,
    "GB": 1e9, "TB": 1e12, "MFLOP/s": 1e6, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15, "MFLOP": 1e6,
    "GFLOP": 1e9, "TFLOP": 1e12, "PFLOP": 1e15, "million": 1e6, "billion": 1e9, "trillion": 1e12,
}  # fmt: skip
_NUMBER = re.compile(
    r"(?<![\w.`#-])(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(e[+-]?\d+)?\s?("
    + "|".join(map(re.escape, sorted(_UNITS, key=len, reverse=True)))
    + r")?(?![\w])"
)  # fmt: skip


def said_of(of: Workbench, key: str, values: dict[str, Any]) -> tuple[str, list[Said]]:
    item = registry()[key]
    events = list(answer(AnswerContext(of), item, arguments(item, values)))
    return "".join(e.text for e in events if isinstance(e, TextDelta)), events


@cache
def bench_of_configuration() -> Workbench:
    config, _ = parse_config(CONFIG)
    return Workbench.of_values(without_profile(config), config)


def numbers(value: Any) -> Iterator[float]:
    """All numbers of a result, those within its texts included."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        yield float(value)
    elif isinstance(value, str):
        yield from (found for found, _ in printed(value))
    else:
        for item in [*value.values(), *value] if isinstance(value, dict) else value:
            yield from numbers(item)


def printed(text: str) -> Iterator[tuple[float, float]]:
    """Numbers of a text in SI units, with half of their last digit."""
    for match in _NUMBER.finditer(text):
        factor = _UNITS.get(match[4] or "", 1.0)
        digits = len((match[2] or ".")[1:])
        value = float(match[1].replace(",", "") + (match[2] or "") + (match[3] or ""))
        scale = 10.0 ** float((match[3] or "e0")[1:])
        yield value * factor, 0.51 * 10.0**-digits * scale * factor


def unbacked(text: str, results: Iterable[Any], given: dict[str, Any]) -> list[str]:
    known = {abs(n) for result in results for n in numbers(result)} | set(numbers(given))
    bare = re.sub(r"```.*?```|`[^`]*`", " ", text, flags=re.DOTALL)
    return [
        f"{value:g}"
        for value, half in printed(bare)
        if value > 12 and not any(abs(value - other) <= half + 2e-3 * value for other in known)
    ]


@pytest.mark.parametrize(("run", "key"), CASES)
def test_it_answers_with_numbers_of_its_own_tools(run: str, key: str) -> None:
    of = bench(run)
    for values in [{}, FILLED[key]] if key in FILLED else [{}]:
        text, events = said_of(of, key, values)
        assert text.startswith(f"**{registry()[key].title}:**")
        assert len(text) > len(registry()[key].title) + 20, "it says nothing"
        assert not re.search(r"\bNone\b|\bnan\b|\{|\}", re.sub(r"```.*?```", "", text, flags=re.DOTALL)), text
        results = [e.result for e in events if isinstance(e, ToolReturned)] + [
            e.error for e in events if isinstance(e, ToolReturned)
        ]
        assert unbacked(text, results, values) == [], text
        held = [e for e in events if isinstance(e, ConstraintStated | FactStated | Final)]
        assert not held or key in ("hold", "forget"), "nothing is held without being stated"


@pytest.mark.parametrize("key", registry())
def test_it_answers_over_a_configuration_alone(key: str) -> None:
    of = bench_of_configuration()
    for values in [{}, FILLED[key]] if key in FILLED else [{}]:
        text, _ = said_of(of, key, values)
        assert text.startswith(f"**{registry()[key].title}:**") and " measured now" not in text


def test_titles_and_examples_are_each_of_one_capability() -> None:
    titles = [item.title for item in registry().values()]
    examples = [text for item in registry().values() for text in item.examples]
    assert len(set(titles)) == len(titles) and not any(":" in title for title in titles)
    assert len(set(examples)) == len(examples)
    for item in registry().values():
        assert len(item.examples) >= 3 and item.description.endswith(".") and item.area in AREAS


def test_a_missing_value_is_asked_for_with_choices_that_compute() -> None:
    from proposals.agents.reasoner.understand import commanded

    for key in ("cost", "training_time", "change_chip", "chips_for_time", "combine", "price_mesh", "why_not"):
        _, events = said_of(bench("gradients over DCN"), key, {})
        (question,) = [e for e in events if isinstance(e, Question)]
        assert question.options
        for option in question.options:
            asked = commanded(option)
            assert asked is not None and asked.of.key == key
            text, _ = said_of(bench("gradients over DCN"), key, asked.values)
            assert question.text not in text


def test_cost_is_chips_times_time_times_price() -> None:
    of = bench("gradients over DCN")
    _, events = said_of(of, "cost", {"usd_per_chip_hour": 2.7})
    (row, *_) = next(e.result["rows"] for e in events if isinstance(e, ToolReturned))
    step, chips = of.diagnosis.kpis["step_time_s"], of.config.hardware.chips
    assert row["cost_per_step"] == pytest.approx(step * chips / 3600 * 2.7)
    tokens = of.config.training.global_batch_tokens
    assert row["cost_per_trillion_tokens"] == pytest.approx(row["cost_per_step"] * 1e12 / tokens)


def test_the_same_run_on_its_own_chips_is_the_run_itself() -> None:
    from evaluation.quality.evidence import ask

    of = bench("tensor axis across NVLink domains")
    found = ask(of, "retarget", chip=of.config.hardware.chip, chips=of.config.hardware.chips)
    assert found["there"]["speedup_per_token"] == pytest.approx(1.0, rel=1e-6)
    assert found["there"]["mesh"]["ici"] == dict(of.config.mesh.ici)


def test_a_speedup_on_other_chips_is_the_ratio_of_the_times_per_token() -> None:
    from evaluation.quality.evidence import ask

    of = bench("expert dispatch")
    found = ask(of, "retarget", chips=2 * of.config.hardware.chips)["there"]
    ratio = of.diagnosis.kpis["step_time_s"] / found["step_time_s"]["estimate"]
    assert found["speedup_per_token"] == pytest.approx(ratio, rel=1e-6)
    assert found["speedup_per_token_and_chip"] == pytest.approx(ratio / 2, rel=1e-6)


def test_more_chips_of_a_kind_never_take_longer_on_their_best_mesh_for_the_same_batch() -> None:
    from evaluation.quality.evidence import ask

    rows = ask(bench("expert dispatch"), "chip_counts", step_time_s=1e-6)["rows"]
    times = [row["step_time_s"]["estimate"] for row in rows if row["fits"]]
    assert len(times) > 3
    assert times[-1] < times[0]


def test_a_model_computes_capabilities_as_one_tool_and_cannot_hold_or_decide() -> None:
    tool = compute_tool(bench())
    found: Any = tool.function(
        tool.arguments.model_validate({"capability": "memory_parts", "arguments": {"proposal": 1}})
    )
    assert found["answers"] == registry()["memory_parts"].title and found["results"]
    json.dumps(found)
    assert "hold(" not in tool.description and "decide(" not in tool.description
    with pytest.raises(Exception, match="no capability"):
        tool.function(tool.arguments.model_validate({"capability": "hold", "arguments": {"keep_batch": True}}))


def test_offered_meshes_may_run_and_are_no_proposals() -> None:
    of = bench("tensor axis across NVLink domains")
    _, events = said_of(of, "tensor", {})
    for offer in [e for e in events if isinstance(e, MeshOffered)]:
        assert not of.pricer.evaluate(offer).violations
