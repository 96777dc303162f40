"""Collectives of a profile: kind, payload, participants, mesh axis, bandwidth, and which tensor moves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite

from diagnosis.analyzer import links, names
from diagnosis.analyzer.axes import AxisMatch, MeshAxes, of_process_group
from experiments.hlo import groups
from experiments.hlo import text as hlo
from experiments.step_profile import Op
from perfmodel.config import ExperimentConfig

#: Longest words first: `all-reduce-scatter` (XLA's fusion of an all-reduce with the slice after it) is a
#: reduce-scatter.
_KINDS = (
    ("all-reduce-scatter", "reduce-scatter"),
    ("reduce-scatter", "reduce-scatter"),
    ("ragged-all-to-all", "all-to-all"),
    ("all-to-all", "all-to-all"),
    ("alltoall", "all-to-all"),
    ("all-gather", "all-gather"),
    ("allgather", "all-gather"),
    ("all-reduce", "all-reduce"),
    ("allreduce", "all-reduce"),
    ("collective-permute", "collective-permute"),
    ("collective-broadcast", "collective-broadcast"),
    ("reducescatter", "reduce-scatter"),
    ("cross-replica-sum", "all-reduce"),
)
_UNNAMED = re.compile(
    r"async(hronous)?[- ]collective|collective[- ](completion|done|start|fusion)|\b[nr]ccl|^collective:"
)
_POINT = re.compile(r"^(send|recv|send-done|recv-done|send/recv)(\.\d+)?$")
#: A matmul with a fused collective computes while it communicates: it counts as a matmul.
_MATMUL = re.compile(r"matmul|matrix|einsum|\bdot\b|gemm|windowed|convolution")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_GAP = re.compile(r"[\s_]+")
_PARTS = tuple((ending, re.compile(rf"-{ending}([.\s\-]|$)")) for ending in ("start", "done"))
#: Most lines hold none of these words; to parse them all would be most of the work.
_WORTH_PARSING = re.compile(r"all[-_](?:reduce|gather|to)|reduce[-_]scatter|collective|async|send|recv")


@dataclass(frozen=True)
class Collective:
    """What is known of one collective op.  part: `sync`, `start` or `done`.

    payload_bytes: per occurrence, see `links.ideal_time_s`.  match: None where its axis is unknown.  achieved and
    possible bandwidth: bytes a chip must send over the time it took, and over the least time on these links.
    above_links: the rate where it exceeds what the links carry (achieved is None then).
    """

    kind: str
    part: str
    match: AxisMatch | None = None
    payload_bytes: float | None = None
    participants: int | None = None
    achieved_bytes_per_s: float | None = None
    possible_bytes_per_s: float | None = None
    tensor: str = ""
    above_links: float | None = None

    @property
    def axis(self) -> str | tuple[str, ...] | None:
        return self.match.label if self.match else None


@lru_cache(maxsize=65536)
def dashed(text: str) -> str:
    return _GAP.sub("-", _CAMEL.sub("-", text)).lower()


def _kind_in(text: str) -> str | None:
    for word, kind in _KINDS:
        if word in text:
            return kind
    return None


@lru_cache(maxsize=65536)
def identify(name: str, category: str, line: str) -> tuple[str, str] | None:
    """(kind, part) of a collective, None for any other op.  kind is `collective` if nothing more is known."""
    plain, group = dashed(name), dashed(category)
    text = f"{plain} {group}"
    if any(word in group for word in ("host", "infeed", "outfeed")):
        return None
    opcode, calls = "", ""
    instruction = hlo.parse(line) if line and _WORTH_PARSING.search(line) else None
    if instruction:
        opcode, calls = instruction.opcode, dashed(instruction.calls)
        if opcode.startswith("async-"):
            calls = f"{calls} {' '.join(instruction.operand_names)}"
    part = "sync"
    for ending, pattern in _PARTS:
        if opcode.endswith(f"-{ending}") or (ending in text and pattern.search(text)):
            part = ending
    if "completion" in text:
        part = "done"
    if opcode and (kind := _kind_in(opcode)):
        return kind, part
    if opcode in ("send", "recv", "send-done", "recv-done") or _POINT.match(plain) or _POINT.match(group):
        return "send/recv", "done" if "done" in (opcode or text) else "sync"
    if _MATMUL.search(text) and "convolution-fusion" not in group:
        return None
    if opcode in ("", "fusion", "custom-call", "call") or opcode.startswith("async-"):
        where = f"{group} {calls}" if opcode.startswith("async-") else f"{text} {calls}"
        if group in ("convolution-fusion", "loop-fusion", "input-fusion", "convolution") and not _kind_in(calls):
            where = calls
        if kind := _kind_in(where):
            return kind, part
        if _UNNAMED.search(where.replace("-", " ").replace("  ", " ")) or _UNNAMED.search(where):
            return "collective", part
    return None


def _start_of(op: Op, by_name: Mapping[tuple[str, str], Op], depth: int = 3) -> str | None:
    """HLO of the -start that a -done waits for: its operand, or the op with the same number."""
    instruction = hlo.parse(op.hlo) if op.hlo else None
    for operand in instruction.operand_names if instruction else ():
        start = by_name.get((op.program, operand))
        if start is None or start is op:
            continue
        if groups.parse(start.hlo):
            return start.hlo
        if depth and (start_name := _start_of(start, by_name, depth - 1)):
            return start_name
    base = op.name.lstrip("%")
    for done, start_word in (("-done", "-start"), ("_done", "_start"), ("-done", "-fusion"), ("-done", "")):
        if done in base:
            other = by_name.get((op.program, base.replace(done, start_word)))
            if other is not None and other is not op and groups.parse(other.hlo):
                return other.hlo
    return None


class Collectives:
    """Reads the collectives of one profile under one configuration."""

    def __init__(
        self, ops: Sequence[Op], config: ExperimentConfig | None, wired: bool = True, trains: bool = True
    ) -> None:
        self.config = config
        self.wired = wired
        self.trains = trains
        self.mesh = MeshAxes(config.mesh) if config else None
        self._by_name: dict[tuple[str, str], Op] = {}
        for op in ops:
            self._by_name.setdefault((op.program, op.name.lstrip("%")), op)

    def read(self, op: Op) -> Collective | None:
        """What `op` is as a collective; None if it is none."""
        kind_and_part = identify(op.name, op.category, op.hlo)
        if kind_and_part is None:
            return None
        kind, part = kind_and_part
        line, via = op.hlo, ""
        stated = groups.parse(op.hlo) if op.hlo else None
        if stated is None and (start := _start_of(op, self._by_name)):
            stated, via = groups.parse(start), "start op"
            if kind == "collective" and (of_start := identify("", "", start)):
                kind = of_start[0]
            line = start if not op.hlo else op.hlo
        if stated is not None and stated.pairs and kind == "collective":
            kind = "collective-permute"
        match, participants = self._axis(stated, via)
        if stated is None and (op.groups or op.group_name):
            match, participants = of_process_group(op, self.mesh)
        if participants is None:
            participants = _size_from_shapes(kind, op.hlo)
            if match is None and self.mesh is not None:
                match = self.mesh.of_size(participants) if participants else None
                match = match or self.mesh.only_axis()
                if match:
                    participants = match.participants
        payload = payload_bytes(kind, part, line, participants) if op.payload_bytes is None else op.payload_bytes
        achieved, possible = self._bandwidth(op, kind, part, match, payload, participants)
        return Collective(
            kind, part, match, payload, participants, achieved, possible, self._tensor(op, kind, match, payload)
        )

    def _axis(self, stated: groups.Groups | None, via: str) -> tuple[AxisMatch | None, int | None]:
        if stated is None:
            return None, None
        match = self.mesh.match(stated) if self.mesh else None
        if match and via:
            match = AxisMatch(match.ici, match.dcn, match.participants, match.exact, via)
        if match:
            return match, match.participants
        if stated.everyone or stated.pairs:
            return None, None
        return None, stated.size

    def links_of(self, match: AxisMatch) -> links.AxisLinks | None:
        if self.config is None:
            return None
        return links.mesh_links(self.config.hardware, self.config.mesh, match.ici)

    def _bandwidth(
        self, op: Op, kind: str, part: str, match: AxisMatch | None, payload: float | None, participants: int | None
    ) -> tuple[float | None, float | None]:
        """Achieved and possible bytes/s per chip.  An asynchronous pair's own time is only its wait: not achieved."""
        if not payload or not participants or participants < 2:
            return None, None
        sent = links.wire_bytes(kind, payload, participants)
        achieved = None
        if part == "sync" and op.self_time_s > 0 and op.occurrences:
            # Time that ranks wait for each other inside it is not transfer time.
            rate = sent * op.occurrences / max(op.self_time_s - (op.wait_s or 0.0), 1e-12)
            achieved = rate if isfinite(rate) else None
        possible = None
        if match and self.config and self.wired:
            if match.dcn:
                possible = links.dcn_bytes_per_s(self.config)
            elif wires := self.links_of(match):
                least = links.ideal_time_s(kind, payload, wires.links)
                possible = sent / least if least > 0 else None
        return achieved, possible

    def _tensor(self, op: Op, kind: str, match: AxisMatch | None, payload: float | None) -> str:
        """parameters, gradients, activations, keys and values, expert dispatch, scalars; empty where nothing tells."""
        path = op.op_name or hlo.op_name(op.hlo)
        module, phase = names.module(path, op.name), names.phase(path)
        if payload is not None and payload <= 1024 and kind == "all-reduce":
            return "scalars"
        roles: set[str] = set()
        if match and self.config:
            mesh = self.config.mesh
            roles = {mesh.role(axis) for axis in match.ici}
            if match.dcn:
                roles |= {mesh.role(axis) for axis, size in mesh.dcn if size > 1}
        if roles and roles <= {"pipeline"}:
            return "activations between stages"
        if kind == "all-to-all" and ("expert" in roles or module == "experts"):
            return "expert dispatch"
        if "model" in roles:
            return "gradients" if phase == "optimizer" else "activations"
        if roles == {"seq"} and (kind == "collective-permute" or (module == "attention" and self._weights_elsewhere())):
            return "keys and values"
        if kind == "all-to-all":
            return "activations" if roles else ""
        if phase == "optimizer" and kind != "all-gather":
            return "gradients"
        if roles and roles <= {"data", "fsdp", "replica", "seq", "expert"}:
            if kind in ("all-gather", "collective-permute"):
                sharded = self.config is not None and self.config.training.weight_sharding != "none"
                return "parameters" if sharded or phase == "optimizer" else "activations"
            if kind in ("reduce-scatter", "all-reduce"):
                forward = not self.trains or (phase == "forward" and module not in ("", "loss"))
                return "activations" if forward else "gradients"
        if kind == "reduce-scatter" and phase == "backward":
            return "gradients"
        return ""

    def _weights_elsewhere(self) -> bool:
        """Weights are shared by data shards too, so what stays inside the sequence axis is not theirs."""
        return self.config is None or self.config.mesh.size("data", "fsdp", "replica") > 1


def _size_from_shapes(kind: str, line: str) -> int | None:
    """Group size from how much an array grows or shrinks, where the groups themselves are not stated."""
    instruction = hlo.parse(line) if line else None
    if instruction is None or len(instruction.results) != 1 or not instruction.operands:
        return None
    big, small = instruction.result_bytes, max(shape.bytes for shape in instruction.operands)
    if kind == "reduce-scatter":
        big, small = small, big
    elif kind != "all-gather":
        return None
    if small <= 0 or big <= small or big % small:
        return None
    return int(big // small)


def payload_bytes(kind: str, part: str, line: str, participants: int | None) -> float | None:
    """Bytes of one occurrence, see `links.ideal_time_s`; None where the line has no shapes."""
    instruction = hlo.parse(line) if line else None
    if instruction is None or not instruction.results:
        return None
    out, into = instruction.result_bytes, instruction.operand_bytes
    size = participants or 0
    start = part == "start"
    match kind:
        case "all-gather":
            if start and len(instruction.results) > 1:  # ((operands), (results))
                return out - into if into and out > into else (out * size / (size + 1) if size else None)
            return out
        case "reduce-scatter":
            if part == "done":
                return out * size if size else None
            if instruction.opcode == "fusion" and instruction.operands:
                return max(shape.bytes for shape in instruction.operands)
            return into or (out * size if size else None)
        case "all-reduce":
            if instruction.opcode == "fusion" and into:
                return out
            return into if start and into else out
        case "collective-permute" | "send/recv":
            return into if part != "done" and into else instruction.results[0].bytes
        case _:
            return out
