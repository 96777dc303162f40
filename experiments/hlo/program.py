"""A whole HLO module as text: its computations, how often each runs, and what its instructions take.

The text is what `compiled.as_text()` of JAX prints: operands by name alone, loop bodies as computations of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from experiments.hlo import text as hlo
from experiments.hlo.text import Instruction

_HEADER = re.compile(r"^(ENTRY\s+)?%?([\w.\-]+)\s*\(.*\{\s*$")
_CALLED = re.compile(
    r"\b(?:calls|to_apply|body|condition|true_computation|false_computation|called_computations|branch_computations)="
    r"(?:\{([^}]*)\}|%?([\w.\-]+))"
)
_TRIPS = re.compile(r'"known_trip_count":\s*\{\s*"n":\s*"(\d+)"')
_ATTRIBUTE = re.compile(r"\b(body|condition|direction|index)=%?([\w.\-]+)")
_CONSTANT = re.compile(r"constant\((-?\d+)\)")
_PASSED_ON = ("copy", "bitcast", "convert", "copy-start", "copy-done")


@dataclass(frozen=True)
class Line:
    """One instruction with the text that it was read from."""

    instruction: Instruction
    text: str
    root: bool

    def attribute(self, name: str) -> str:
        return next((value for key, value in _ATTRIBUTE.findall(self.instruction.attributes) if key == name), "")


@dataclass(frozen=True)
class Program:
    """computations: instructions by name of the computation, in order; entry: the one that runs."""

    computations: dict[str, dict[str, Line]]
    entry: str

    @classmethod
    def parse(cls, text: str) -> Program:
        computations: dict[str, dict[str, Line]] = {}
        entry, current = "", None
        for line in text.splitlines():
            if header := _HEADER.match(line):
                current = computations.setdefault(header.group(2), {})
                entry = header.group(2) if header.group(1) else entry
            elif line.startswith("}"):
                current = None
            elif current is not None and (instruction := hlo.parse(line.strip())):
                current[instruction.name] = Line(instruction, line.strip(), line.lstrip().startswith("ROOT"))
        return cls(computations, entry)

    @cached_property
    def executions(self) -> dict[str, int]:
        """How often each computation runs in one run of the program; a branch counts as taken.

        Loops whose number of trips cannot be read count once.
        """
        counts: dict[str, int] = {}
        # From the entry down the tree of calls, which has no circles; a computation called from several places adds up.
        pending = [(self.entry, 1)]
        while pending:
            name, times = pending.pop()
            counts[name] = counts.get(name, 0) + times
            for line in self.computations.get(name, {}).values():
                trips = self.trips(name, line) or 1 if line.instruction.opcode == "while" else 1
                for called in _called(line):
                    if called in self.computations:
                        pending.append((called, times * trips))
        return counts

    @cached_property
    def fused(self) -> dict[str, Line]:
        """The caller of every computation that is the inside of a fusion or of an asynchronous op."""
        callers: dict[str, Line] = {}
        for lines in self.computations.values():
            for line in lines.values():
                if line.instruction.opcode.startswith(("fusion", "async-")):
                    callers |= dict.fromkeys(_called(line), line)
        return callers

    def lines(self) -> Iterator[tuple[str, Line, int]]:
        """Every instruction that runs: its computation, itself, and how often."""
        for name, times in self.executions.items():
            for line in self.computations.get(name, {}).values():
                yield name, line, times

    def operand_bytes(self, computation: str, line: Line) -> float:
        """Bytes of all operands, looked up where the line names them without their shapes."""
        if line.instruction.operands:
            return line.instruction.operand_bytes
        known = self.computations[computation]
        return sum(known[n].instruction.result_bytes for n in line.instruction.operand_names if n in known)

    def trips(self, computation: str, loop: Line) -> int | None:
        """Trips of a `while` that counts from a constant to a constant; None where it does otherwise."""
        if known := _TRIPS.search(loop.instruction.attributes):
            return int(known.group(1))
        condition = self.computations.get(loop.attribute("condition"), {})
        body = self.computations.get(loop.attribute("body"), {})
        bound = self._bound(condition)
        if bound is None or not loop.instruction.operand_names:
            return None
        index, limit = bound
        start = self._tuple_element(self.computations[computation], loop.instruction.operand_names[0], index)
        step = self._step(body, index)
        if start is None or not step or (limit - start) * step < 0:
            return None
        return ceil((limit - start) / step)

    def _bound(self, condition: dict[str, Line]) -> tuple[int, int] | None:
        """Which element of the loop's state is compared, and the exclusive bound."""
        root = next((line for line in condition.values() if line.root), None)
        if root is None:
            return None
        names = root.instruction.operand_names
        compare: Line | None = root
        if root.instruction.opcode == "fusion":  # a comparison wrapped in a fusion takes its operands in order
            inner = self.computations.get(root.instruction.calls, {})
            compare = next((line for line in inner.values() if line.instruction.opcode == "compare"), None)
        if compare is None or compare.instruction.opcode != "compare":
            return None
        index = limit = None
        for name in names:
            line = condition.get(name)
            if line is None:
                continue
            if line.instruction.opcode == "get-tuple-element":
                index = int(line.attribute("index") or -1)
            elif (value := _constant(line)) is not None:
                limit = value
        direction = compare.attribute("direction")
        if index is None or limit is None or direction not in ("LT", "GT", "LE", "GE", "NE"):
            return None
        return index, limit + {"LE": 1, "GE": -1}.get(direction, 0)

    def _tuple_element(self, lines: dict[str, Line], name: str, index: int) -> int | None:
        """The constant at `index` of a tuple; zero where it comes from an argument nobody can read."""
        made = lines.get(name)
        if made is None or made.instruction.opcode != "tuple" or index >= len(made.instruction.operand_names):
            return None
        line = _followed(lines, made.instruction.operand_names[index])
        return _constant(line) if line is not None else None

    def _step(self, body: dict[str, Line], index: int) -> int | None:
        root = next((line for line in body.values() if line.root), None)
        if root is None or index >= len(root.instruction.operand_names):
            return None
        line = _followed(body, root.instruction.operand_names[index])
        if line is None:
            return None
        if line.instruction.opcode == "fusion":
            inner = self.computations.get(line.instruction.calls, {})
            constants = [value for one in inner.values() if (value := _constant(one)) is not None]
            return constants[0] if len(constants) == 1 else None
        if line.instruction.opcode not in ("add", "subtract"):
            return None
        total = 0
        for name in line.instruction.operand_names:
            of = _followed(body, name)
            value = _constant(of) if of is not None else None
            if value is not None:
                total += value
            elif of is not None and of.instruction.opcode == "add":  # a body that was unrolled adds twice
                total += sum(
                    c for n in of.instruction.operand_names if (o := body.get(n)) and (c := _constant(o)) is not None
                )
        return -total if line.instruction.opcode == "subtract" else total


def _called(line: Line) -> list[str]:
    names = []
    for several, one in _CALLED.findall(line.instruction.attributes):
        names += [one] if one else [name.strip().lstrip("%") for name in several.split(",")]
    return names


def _followed(lines: dict[str, Line], name: str) -> Line | None:
    line = lines.get(name)
    while line is not None and line.instruction.opcode in _PASSED_ON and line.instruction.operand_names:
        line = lines.get(line.instruction.operand_names[0])
    return line


def _constant(line: Line) -> int | None:
    if line.instruction.opcode != "constant":
        return None
    match = _CONSTANT.search(line.text)
    return int(match.group(1)) if match else None
