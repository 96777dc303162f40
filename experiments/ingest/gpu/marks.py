"""Names by which programs, profilers and serving engines mark steps, and by which the waits of a host are known."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache

import numpy as np

from experiments.ingest.gpu.columns import Collected
from experiments.ingest.marks import NO_STEPS, Steps

#: What a host is doing while the device waits for it, first match first.
_WAITS = (
    ("input", re.compile(r"DataLoader|dataloader\.py\(\d+\): __next__|data_?iterator|next\(.*loader", re.I)),
    ("checkpoint", re.compile(r"save_?(checkpoint|state)|checkpoint\w*\.save|torch\.save", re.I)),
    ("synchronisation", re.compile(r"^(cuda|hip|cu)\w+Synchronize$|^aten::(item|_local_scalar_dense|nonzero)$")),
    ("optimizer", re.compile(r"^Optimizer\.(step|zero_grad)#")),
)
#: Iterations of a serving engine, with their numbers of requests in prefill and in decode.  Sources: vLLM
#: (gpu_worker.annotate_profile), TensorRT-LLM (py_executor._forward_step).
_ENGINES = (
    re.compile(r"^execute_.*?context_(?P<context>\d+).*?generation_(?P<generation>\d+)"),
    re.compile(r"_forward_step.*?(?P<context>\d+) ctx reqs.*?(?P<generation>\d+) gen reqs"),
)
_STEP = re.compile(r"^ProfilerStep\s*#\s*(\d{1,15})$")
_ITERATION = re.compile(r"^\W*(?:train(?:ing)?[ _-]?)?(?:iteration|iter|step)[ _#:-]*(\d{1,15})\W*$", re.I)
_UNNUMBERED = re.compile(r"^\W*(?:train(?:ing)?[ _-]?)?(?:iteration|iter|step|batch)\W*$", re.I)
_OPTIMIZER = re.compile(r"^Optimizer\.step#")


@lru_cache(maxsize=65536)
def host_wait(name: str) -> str:
    """`input`, `checkpoint`, `synchronisation`, `optimizer`; empty for any other call of the host."""
    return next((cause for cause, pattern in _WAITS if pattern.search(name)), "")


def _engine(name: str) -> re.Match[str] | None:
    return next((match for pattern in _ENGINES if (match := pattern.search(name))), None)


def is_step_mark(name: str) -> bool:
    return any(pattern.match(name) for pattern in (_STEP, _ITERATION, _UNNUMBERED))


def mark(collected: Collected, name: str, start: int, end: int) -> None:
    """Keep a range that marks a step."""
    if match := _STEP.match(name):
        collected.marks["step"].append((int(match.group(1)), start, end))
    elif match := _ITERATION.match(name):
        collected.marks["iteration"].append((int(match.group(1)), start, end))
    elif _UNNUMBERED.match(name):
        collected.marks["iteration"].append((-1, start, end))
    elif (match := _engine(name)) is not None:
        collected.marks["engine"].append((-1, start, end))
        collected.requests.append((int(match["context"]), int(match["generation"])))
    elif _OPTIMIZER.match(name):
        collected.marks["optimizer"].append((collected.names.of(name), start, end))


def host_steps(collected: Collected) -> Steps:
    """ProfilerStep marks; else iterations of a serving engine; else the program's own (`iteration 12`); else from one
    optimizer step to the next."""
    marks = (("step", "ProfilerStep"), ("engine", "a serving engine's iterations"), ("iteration", "the program"))
    for key, how in marks:
        ordered = sorted(collected.marks[key], key=lambda item: item[1])
        if ordered and (key != "iteration" or len(ordered) > 1):
            return _tiling(ordered, how)
    by_name: dict[int, list[int]] = defaultdict(list)
    for optimizer, _, end in collected.marks["optimizer"]:
        by_name[optimizer].append(end)
    counts = {len(ends) for ends in by_name.values()}
    if len(counts) != 1 or counts == {1}:
        return NO_STEPS
    # Several optimizers step one after the other: the last of them ends the step.
    ends = [max(group) for group in zip(*(sorted(ends) for ends in by_name.values()), strict=True)]
    return Steps(tuple(range(1, len(ends))), np.array(ends[:-1]), np.array(ends[1:]), how="optimizer steps")


def _tiling(steps: list[tuple[int, int, int]], how: str) -> Steps:
    """Marks in order of time without those inside others; their own numbers where these are distinct."""
    kept: list[tuple[int, int, int]] = []
    for number, start, end in steps:
        if not kept or start >= kept[-1][2]:
            kept.append((number, start, end))
    numbers = [number for number, _, _ in kept]
    if len(set(numbers)) < len(numbers) or -1 in numbers:
        numbers = list(range(1, len(kept) + 1))
    starts, ends = np.array([span[1:] for span in kept], np.int64).T
    return Steps(tuple(numbers), starts, ends, how=how)
