"""Where in the program a device op was launched: framework op, modules, phase, line, collective.

Host events of a thread nest, so the events open at the time of a launch are its context.  Ops of the backward pass run
on autograd's thread, outside any module: each carries the sequence number of the forward op it belongs to, whose
modules are theirs.  A forward op inside the backward pass is recomputation (activation checkpointing).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.ingest.gpu.columns import ANNOTATION, FRAME, Collected, Columns
from experiments.ingest.gpu.marks import is_step_mark

FORWARD, BACKWARD, RECOMPUTE, OPTIMIZER = "forward", "backward", "recompute", "optimizer"
_MODULE = re.compile(r"^nn\.Module: (.+?)(_\d+)?$")
_FRAME_LINE = re.compile(r"^(.{1,300})\((\d+)\): ")
_OPTIMIZER = re.compile(r"^Optimizer\.(step|zero_grad)#")
#: Annotations that name no part of the program.
_SILENT = re.compile(r"^(nccl:|\[|PyTorch Profiler|record_param_comms)")
_NUMBER = re.compile(r"\d+")
_ENGINE = "autograd::engine::evaluate_function: "
_MOST_DEPTH = 12


class Context(NamedTuple):
    """State at one moment of one thread.  path: modules; work, traffic: index into works and the host event whose they
    are; comm: index into comms; in_module: the path names modules, not only annotations."""

    phase: str = ""
    path: tuple[str, ...] = ()
    op: str = ""
    source: str = ""
    work: int = -1
    work_event: int = -1
    traffic: int = -1
    op_event: int = -1
    comm: int = -1
    in_module: bool = False


NOWHERE = Context()


def contexts(collected: Collected, threads: NDArray[np.int64], times: NDArray[np.int64]) -> list[Context]:
    """The context of each (thread index, time)."""
    by_place = [NOWHERE] * len(times)

    wanted: dict[int, NDArray[np.int64]] = {}
    for thread in np.unique(threads).tolist():
        wanted[thread] = np.flatnonzero(threads == thread)
    forward_paths: dict[int, tuple[str, ...]] = {}
    offset = 0
    # Forward threads first, for their sequence numbers.
    for key, rows in sorted(collected.threads.items(), key=lambda item: _backward_ops(collected, item[1])):
        thread = collected.thread_ids[key]
        sweep = _Sweep(collected, rows, forward_paths, offset)
        places = wanted.get(thread, np.zeros(0, np.int64))
        order = places[np.argsort(times[places], kind="stable")]
        for place, context in zip(order.tolist(), sweep.at(times[order].tolist()), strict=True):
            by_place[place] = context
        offset += len(rows)

    return by_place


def _backward_ops(collected: Collected, rows: Columns) -> int:
    """How many nodes of autograd's graph a thread ran."""
    engine = np.array([text.startswith(_ENGINE) for text in collected.names.texts])
    return int(engine[rows["name"]].sum())


class _Sweep:
    """One thread's events in the order of time, with the state inside each."""

    def __init__(
        self, collected: Collected, rows: Columns, forward_paths: dict[int, tuple[str, ...]], offset: int
    ) -> None:
        self.collected, self.forward_paths, self.offset = collected, forward_paths, offset
        self.order = np.lexsort((-rows["end"], rows["start"])).tolist()
        self.starts, self.ends, self.names, self.kinds = (
            rows[key].tolist() for key in ("start", "end", "name", "what")
        )
        self.columns = {key: rows[key].tolist() for key in ("seq", "forward", "work", "comm")}

    def at(self, times: Sequence[int]) -> list[Context]:
        """The state at each of the ascending times."""
        starts, ends, open_at = self.starts, self.ends, []
        stack: list[tuple[int, Context]] = []
        position, count = 0, len(self.order)
        for time in [*times, None]:
            while position < count and (time is None or starts[self.order[position]] <= time):
                event = self.order[position]
                position += 1
                while stack and stack[-1][0] <= starts[event]:
                    stack.pop()
                outer = stack[-1][1] if stack else NOWHERE
                stack.append((ends[event], self._enter(outer, event)))
            if time is None:
                break
            while stack and stack[-1][0] < time:
                stack.pop()
            open_at.append(stack[-1][1] if stack else NOWHERE)
        return open_at

    def _enter(self, outer: Context, event: int) -> Context:
        name = self.collected.names.texts[self.names[event]]
        match self.kinds[event]:
            case kind if kind == FRAME:
                return self._frame(outer, name)
            case kind if kind == ANNOTATION:
                return self._annotation(outer, name)
            case _:
                return self._op(outer, event, name)

    def _frame(self, outer: Context, name: str) -> Context:
        if module := _MODULE.match(name):
            phase = RECOMPUTE if outer.phase in (BACKWARD, RECOMPUTE) else outer.phase or FORWARD
            # A module that is called during recomputation starts where the backward pass of its forward op was.
            path = outer.path if outer.phase != BACKWARD else ()
            return outer._replace(phase=phase, path=(*path, module.group(1))[-_MOST_DEPTH:], in_module=True)
        if "checkpoint.py(" in name:
            return outer._replace(phase=RECOMPUTE) if outer.phase == BACKWARD else outer
        line = _FRAME_LINE.match(name)
        return outer._replace(source=f"{line.group(1)}:{line.group(2)}") if line else outer

    def _annotation(self, outer: Context, name: str) -> Context:
        if _OPTIMIZER.match(name):
            return outer._replace(phase=OPTIMIZER, path=(name.partition("#")[2][:60] or "Optimizer",))
        # Where modules are recorded, annotations repeat them (`DistributedDataParallel.forward`).
        if _SILENT.match(name) or is_step_mark(name) or outer.in_module or len(outer.path) >= _MOST_DEPTH:
            return outer
        return outer._replace(path=(*outer.path, _NUMBER.sub("#", name)[:60].replace("/", " ")))

    def _op(self, outer: Context, event: int, name: str) -> Context:
        seq, is_forward, index, comm = (self.columns[key][event] for key in ("seq", "forward", "work", "comm"))
        if name.startswith(_ENGINE):
            path = self.forward_paths.get(seq, ()) if seq >= 0 else ()
            return Context(BACKWARD, path, name[len(_ENGINE) :][:100], outer.source)
        phase, path = outer.phase, outer.path
        if phase == BACKWARD:
            again = seq >= 0 and is_forward and not name.startswith("autograd::") and "Backward" not in name
            if again or name == "CheckpointFunctionBackward":
                phase = RECOMPUTE
        elif seq >= 0 and phase not in (RECOMPUTE, OPTIMIZER):
            phase = phase or FORWARD
            # Ops before the differentiable one may carry its number already: the last op to carry it has it.
            self.forward_paths[seq] = path
        amount, traffic = self.collected.works[index] if index >= 0 else (None, None)
        place = self.offset + event
        return Context(
            phase,
            path,
            outer.op if comm >= 0 or name == "record_param_comms" else name[:160],
            outer.source,
            index if amount else outer.work,
            place if amount else outer.work_event,
            index if traffic is not None else -1,
            place,
            comm if comm >= 0 else outer.comm,
            outer.in_module,
        )


def phase_name(context: Context, trains: bool) -> str:
    """The phase, where there is more than one: inference has only a forward pass."""
    return context.phase if trains or context.phase == OPTIMIZER else ""
