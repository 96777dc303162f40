"""Messages and events are values: what goes into a database or a stream comes back the same."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from agent.events import RunEvent, event_to_json
from agent.messages import JsonValue, Usage
from formatting.text import clean

_NUMBERS = st.integers(0, 10**9)
_SECONDS = st.floats(0, 1e6)
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def _field(wanted: Any) -> st.SearchStrategy[Any]:
    if wanted == JsonValue:
        return _JSON
    if wanted is float or float in get_args(wanted):
        return _SECONDS | st.none() if type(None) in get_args(wanted) else _SECONDS
    held = [each for each in get_args(wanted) or (wanted,) if is_dataclass(each) and isinstance(each, type)]
    if held and Ellipsis not in get_args(wanted):
        return st.one_of(*map(_built, held), *([st.none()] if type(None) in get_args(wanted) else []))
    return st.from_type(wanted)


def _built(cls: type) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls)
    return st.builds(cls, **{each.name: _field(hints[each.name]) for each in fields(cls)})


@given(st.one_of([_built(each) for each in get_args(RunEvent)]))
def test_an_event_survives_json(event: RunEvent) -> None:
    data = event_to_json(event)
    assert data["kind"] == event.kind
    assert TypeAdapter(type(event)).validate_json(json.dumps(data, allow_nan=False)) == event


def test_every_event_has_a_kind_of_its_own() -> None:
    kinds = {get_args(get_type_hints(each)["kind"])[0] for each in get_args(RunEvent)}
    assert len(kinds) == len(get_args(RunEvent)) == 9


@given(st.text(st.characters(categories=["L", "N", "Cs", "Cc", "So"])))
def test_a_cleaned_text_can_be_stored_everywhere(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode()  # no lone surrogate
    assert "\0" not in cleaned
    assert clean(cleaned) == cleaned


def test_two_halves_of_a_character_are_joined() -> None:
    assert clean("a\ud83d\ude00b") == "a😀b"
    assert clean("a\ud83db\0") == "a�b�"
    assert clean("größer 模型") == "größer 模型"


def test_usage_adds_up_and_says_when_it_is_estimated() -> None:
    total = Usage(100, 20) + Usage(10, 5, estimated=True)
    assert total == Usage(110, 25, estimated=True)
    assert total.tokens == 135
