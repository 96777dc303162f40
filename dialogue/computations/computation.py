"""A computation: a question that code answers, with typed arguments and the template of its answer.

`Computation` is one entry of the registry; `@computation` makes one of a function. Start reading there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_type_hints

from agent.tools import Arguments
from proposals.agents.values import Value
from proposals.agents.workbench import Workbench

#: What a question is about; the place on a page that carries it.
About = Literal["run", "finding", "proposal", "proposals", "configuration", "ops", "op"]


@dataclass(frozen=True)
class Bar:
    """A stacked step or memory bar.

    parts: by the keys of `Diagnosis.breakdown_s`, or of memory, in SI.  total: printed beside it, with the interval.
    """

    label: str
    parts: Mapping[str, float]
    total: Value | None
    unit: str = "s"


@dataclass(frozen=True)
class Next:
    """A further question: a computation with its arguments filled.  title: default the computation's own."""

    key: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""


@dataclass(frozen=True)
class Answer:
    """What a computation found.

    values: of the template, nested, with a `Value` at each leaf that it prints; None, booleans and counts decide.
    title: of this answer; default the computation's.
    """

    values: Mapping[str, Any]
    bars: tuple[Bar, ...] = ()
    next: tuple[Next, ...] = ()
    title: str = ""


@dataclass(frozen=True)
class Computation:
    """key: of its address and of `templates/answers/<key>.md`.  words: what people also call it, for the palette."""

    key: str
    title: str
    about: About
    words: str
    arguments: type[Arguments]
    compute: Callable[[Workbench, Any], Answer]

    @property
    def description(self) -> str:
        return " ".join((self.compute.__doc__ or "").split())


REGISTRY: dict[str, Computation] = {}


def computation(title: str, about: About, words: str = "") -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Register a function of (workbench, arguments); its name is the key."""

    def register(function: Callable[..., Answer]) -> Callable[..., Answer]:
        arguments = get_type_hints(function)["asked"]
        REGISTRY[function.__name__] = Computation(function.__name__, title, about, words, arguments, function)
        return function

    return register


def about(kind: About) -> Iterator[Computation]:
    """Yield the computations about a kind of object, in the order in which a page shows them."""
    return (item for item in REGISTRY.values() if item.about == kind)
