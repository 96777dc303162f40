"""Names by which programs and profilers mark steps, and by which the wait for a data loader is known."""

from __future__ import annotations

import re
from collections import defaultdict

from experiments.ingest.gpu.columns import Collected
from experiments.ingest.gpu.device import HostSteps

_INPUT = re.compile(r"DataLoader|dataloader\.py\(\d+\): __next__|data_?iterator|next\(.*loader", re.I)
_STEP = re.compile(r"^ProfilerStep\s*#\s*(\d{1,15})$")
_ITERATION = re.compile(r"^\W*(?:train(?:ing)?[ _-]?)?(?:iteration|iter|step)[ _#:-]*(\d{1,15})\W*$", re.I)
_UNNUMBERED = re.compile(r"^\W*(?:train(?:ing)?[ _-]?)?(?:iteration|iter|step|batch)\W*$", re.I)
_OPTIMIZER = re.compile(r"^Optimizer\.step#")


def is_input_wait(name: str) -> bool:
    return bool(_INPUT.search(name))


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
    elif _OPTIMIZER.match(name):
        collected.marks["optimizer"].append((collected.names.of(name), start, end))


def host_steps(collected: Collected) -> HostSteps:
    """ProfilerStep marks; else the program's own (`iteration 12`); else from one optimizer step to the next."""
    for key, how in (("step", "ProfilerStep"), ("iteration", "annotations of the program")):
        ordered = sorted(collected.marks[key], key=lambda item: item[1])
        if ordered and (key == "step" or len(ordered) > 1):
            return _tiling(ordered, how)
    by_name: dict[int, list[int]] = defaultdict(list)
    for optimizer, _, end in collected.marks["optimizer"]:
        by_name[optimizer].append(end)
    counts = {len(ends) for ends in by_name.values()}
    if len(counts) != 1 or counts == {1}:
        return HostSteps()
    # Several optimizers step one after the other: the last of them ends the step.
    ends = [max(group) for group in zip(*(sorted(ends) for ends in by_name.values()), strict=True)]
    return HostSteps(tuple(range(1, len(ends))), tuple(ends[:-1]), tuple(ends[1:]), "optimizer steps")


def _tiling(steps: list[tuple[int, int, int]], how: str) -> HostSteps:
    """Marks in order of time without those inside others; their own numbers where these are distinct."""
    kept: list[tuple[int, int, int]] = []
    for number, start, end in steps:
        if not kept or start >= kept[-1][2]:
            kept.append((number, start, end))
    numbers = [number for number, _, _ in kept]
    if len(set(numbers)) < len(numbers) or -1 in numbers:
        numbers = list(range(1, len(kept) + 1))
    return HostSteps(tuple(numbers), tuple(start for _, start, _ in kept), tuple(end for _, _, end in kept), how)
