"""Functions as tools: what the model sees, what it may send, what it gets back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from agent.bounded import bounded, compact, rounded
from agent.messages import JsonValue, ToolCall
from agent.tools import Arguments, Tool, ToolError, by_name, call_tool
from tests.agent.conftest import tool


class Axis(Arguments):
    name: str = Field(description="Name of the mesh axis.")
    scale: int = Field(1, ge=1, le=8)


@dataclass(frozen=True)
class Size:
    axis: str
    size: int
    time_s: float | None = None


def axis_size(axis: Axis) -> Size:
    """Size of a mesh axis.

    One sentence more.
    """
    sizes = {"data": 4, "model": 2}
    if axis.name not in sizes:
        raise ToolError(f"There is no axis {axis.name}; the axes are data and model.")
    return Size(axis.name, sizes[axis.name] * axis.scale)


def called(used: Tool, arguments: Any) -> Any:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return call_tool({used.name: used}, ToolCall("c1", used.name, text), "r7")


def test_a_function_tells_the_model_what_it_takes() -> None:
    made = tool(axis_size)
    assert (made.name, made.description) == ("axis_size", "Size of a mesh axis.\n\nOne sentence more.")
    schema = made.parameters()
    assert schema["required"] == ["name"]
    assert schema["properties"]["name"]["description"] == "Name of the mesh axis."
    assert schema["properties"]["scale"] == {"type": "integer"}, "bounds are told where they are broken"


def test_a_result_is_json_under_its_id() -> None:
    outcome = called(tool(axis_size), {"name": "data", "scale": 2})
    assert outcome.arguments == {"name": "data", "scale": 2}
    assert outcome.result == {"axis": "data", "size": 8, "time_s": None}
    assert json.loads(outcome.text) == {"id": "r7", "result": outcome.result}
    assert outcome.error is None


def test_a_tool_error_is_a_sentence_for_the_model() -> None:
    outcome = called(tool(axis_size), {"name": "seq"})
    assert outcome.error == "There is no axis seq; the axes are data and model."
    assert json.loads(outcome.text) == {"id": "r7", "error": outcome.error}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"name": "da', "not valid JSON"),
        ('{"name": "data", "scale": 2, "scale": 3}', '"scale" is given twice'),
        ('{"name": "data\\ud800"}', "lone surrogate"),
        ("[1]", "the whole: Input should be a valid dictionary"),
        ({}, "name: Field required"),
        ({"name": "data", "scale": 99}, "scale: Input should be less than or equal to 8 (given: 99)"),
        ({"name": "data", "approve": True}, "approve: Extra inputs are not permitted"),
    ],
)
def test_arguments_that_do_not_fit_are_explained_place_by_place(arguments: Any, told: str) -> None:
    outcome = called(tool(axis_size), arguments)
    assert told in outcome.error
    assert outcome.result is None


def test_an_unknown_tool_is_answered_with_the_ones_there_are() -> None:
    outcome = call_tool(by_name([tool(axis_size)]), ToolCall("c", "axis_sise"), "r1")
    assert outcome.error == "There is no tool 'axis_sise'. Did you mean axis_size? The tools are axis_size."


def test_any_other_exception_is_ours_and_passes() -> None:
    def broken() -> None:
        """Divides by nothing."""
        _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        called(tool(broken), {})


def test_what_no_database_stores_does_not_leave_a_tool() -> None:
    def op() -> dict[str, str]:
        """An op name from a profile."""
        return {"na\0me": "fusion\ud800.1"}

    assert called(tool(op), {}).result == {"na\ufffdme": "fusion\ufffd.1"}


def test_a_large_result_is_shortened_and_says_by_how_much() -> None:
    def ops() -> list[dict[str, Any]]:
        """Every op."""
        return [{"op": f"fusion.{i}", "time_s": i / 7} for i in range(3000)]

    outcome = called(tool(ops, max_chars=5000), {})
    told = json.loads(outcome.text)
    assert len(compact(told["result"])) <= 5000
    kept = len(told["result"])
    assert outcome.result == ops()[:kept] and kept >= 50
    assert told["result"] == rounded(outcome.result) and told["result"][1]["time_s"] == 0.1429
    assert told["left_out"] == [f"result: the first {kept} of 3000 entries"] == list(outcome.truncated)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=150),
        lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
        max_leaves=25,
    ),
    st.integers(60, 600),
)
def test_a_bounded_value_fits_or_is_whole(value: JsonValue, limit: int) -> None:
    smaller, notes = bounded(value, limit)
    if notes:
        assert len(compact(value)) > limit >= len(compact(smaller)) or isinstance(smaller, str)
    else:
        assert smaller == value and len(compact(value)) <= limit


def test_a_text_of_quotes_alone_still_fits() -> None:
    cut, _ = bounded({"text": "One sentence is whole. " * 40}, 400)
    assert isinstance(cut, dict) and str(cut["text"]).endswith("is whole.")
    smaller, notes = bounded({"k" * 5000: '"' * 5000}, 300)
    assert len(compact(smaller)) <= 302
    assert "characters of its JSON" in notes[0]
