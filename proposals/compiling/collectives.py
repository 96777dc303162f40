"""The collectives of a compiled program: kind, mesh axes, how often, and the bytes that a chip sends."""

from __future__ import annotations

from collections.abc import Iterable

from diagnosis.analyzer.axes import AxisMatch, MeshAxes
from diagnosis.analyzer.links import wire_bytes
from experiments.hlo import groups
from experiments.hlo import text as hlo
from experiments.hlo.program import Line, Program
from perfmodel.config import Mesh
from proposals.compiling.result import CollectiveUse

_KINDS = ("all-gather", "all-reduce", "reduce-scatter", "ragged-all-to-all", "all-to-all", "collective-permute",
          "collective-broadcast")  # fmt: skip
#: How XLA names the computation of an all-reduce with the slice after it: on the links a reduce-scatter.
_SCATTERED = "all-reduce-scatter"


def read(text: str, mesh: Mesh) -> tuple[CollectiveUse, ...]:
    """All collectives of a program, by bytes sent, the most first.

    text: HLO after compilation.  An asynchronous collective is in the fusions of its start and of its end: those
    of one channel, kind and source count once.
    """
    program = Program.parse(text)
    axes = MeshAxes(mesh)
    uses: list[CollectiveUse] = []
    fused: dict[tuple[str, ...], CollectiveUse] = {}
    for computation, line, times in program.lines():
        kind = _kind(computation, line)
        stated = groups.parse(line.text) if kind else None
        match = axes.match(stated) if stated else None
        if kind is None or match is None:
            continue
        payload = _payload(kind, program, computation, line)
        sent = times * wire_bytes(kind, payload, match.participants)
        source = hlo.op_name(line.text) or _source_of_caller(program, computation)
        use = CollectiveUse(kind, _names(match), match.participants, payload, times, sent, source)
        if computation not in program.fused:
            uses.append(use)
            continue
        key = (_channel(line) or line.instruction.name, kind, source)
        if key not in fused or sent > fused[key].sent_bytes:
            fused[key] = use
    return tuple(sorted([*uses, *fused.values()], key=lambda use: -use.sent_bytes))


def _source_of_caller(program: Program, computation: str) -> str:
    """Framework path of the fusion that holds a collective, which often has none itself."""
    caller = program.fused.get(computation)
    return hlo.op_name(caller.text) if caller else ""


def by_axis(uses: Iterable[CollectiveUse]) -> dict[tuple[str, ...], float]:
    """Bytes a chip sends per step over each group of axes."""
    sent: dict[tuple[str, ...], float] = {}
    for use in uses:
        sent[use.axes] = sent.get(use.axes, 0.0) + use.sent_bytes
    return sent


def _kind(computation: str, line: Line) -> str | None:
    opcode = line.instruction.opcode.removesuffix("-start")
    if opcode not in _KINDS:
        return None
    if opcode == "all-reduce" and computation.startswith(_SCATTERED):
        return "reduce-scatter"
    return "all-to-all" if opcode == "ragged-all-to-all" else opcode


def _names(match: AxisMatch) -> tuple[str, ...]:
    return (*(("dcn",) if match.dcn else ()), *match.ici)


def _payload(kind: str, program: Program, computation: str, line: Line) -> float:
    """Bytes of one occurrence as `links.ideal_time_s` takes them: the whole array of a gather, a scatter, a reduction;
    what a chip hands on of a permutation or an all-to-all."""
    into, out = program.operand_bytes(computation, line), line.instruction.result_bytes
    if kind == "all-gather":
        # The result of a start repeats its operands.
        return out - into if line.instruction.opcode.endswith("-start") and out > into else out
    return into or out


def _channel(line: Line) -> str:
    _, _, rest = line.text.partition("channel_id=")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return digits
