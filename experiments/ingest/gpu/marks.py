"""Names by which programs, profilers and serving engines mark steps, and by which the waits of a host are known."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from experiments.ingest.gpu.columns import Collected
from experiments.ingest.intervals import Ps
from experiments.ingest.marks import ENGINE, MEASURED, NO_STEPS, Steps

#: What a host is doing while the device waits for it, first match first.
_WAITS = (
    (
        "input",
        re.compile(
            r"DataLoader|dataloader\.py\(\d+\): __next__|data_?iterator|next\(.*loader|IteratorGetNext|QueueDequeue",
            re.I,
        ),
    ),
    # What a first call does: the driver loads a module, a compiler compiles.
    (
        "loading",
        re.compile(
            r"Module Loading|Lazy Function Loading|^(cu|cuda|hip)(Module|Library)(Load|Get)|^compile_inner$|_compile\.|"
            r"backend_compile|PyCodeCache\.load|fx_codegen_and_compile|^nvrtc\w*Compile",
        ),
    ),
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
#: What only a program that trains calls, in names of host ops, ranges and annotations.
_TRAINS = re.compile(
    r"backward(?!\w*(compat|hook))|^autograd::engine|^Optimizer\.|optimi[sz]er[-_. ]?step|DeepSpeedEngine\.step|"
    r"zero_grad|clip_grad|reduce_grads|grad(ient)?s?_(reduce|sync|clip|norm)|"
    r"(?<![a-z])train(ing)?[-_ ]?(step|iter|batch|epoch|loop)",
    re.I,
)
_DIGITS = re.compile(r"\d+")
#: Ranges around what is measured, with its warm-up outside; ranges that repeat within a step or before the first.
_MEASURED = re.compile(r"(?<![a-z])(measur|benchmark|profil|timed)", re.I)
_NO_STEP = re.compile(
    r"^\{|warm|layer|block|module|conv|attention|attn|head|expert|mlp|norm|embed|softmax|linear|matmul|compil|optim|load|init|"
    r"backward|synchron", re.I
)  # fmt: skip
#: Share of what is launched from the first range of a name to the last that they hold, if they are steps; of all.
_HOLDS, _OF_ALL = 0.9, 0.3


@lru_cache(maxsize=65536)
def host_wait(name: str) -> str:
    """`input`, `loading`, `checkpoint`, `synchronisation`, `optimizer`; empty for any other call of the host."""
    return next((cause for cause, pattern in _WAITS if pattern.search(name)), "")


@lru_cache(maxsize=65536)
def trains(name: str) -> bool:
    """Return True if only a program that trains has a range, an annotation or a host op of this name."""
    return bool(_TRAINS.search(name))


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


def host_steps(collected: Collected, launched: Ps | None = None) -> Steps:
    """ProfilerStep marks; else iterations of a serving engine; else the program's own (`iteration 12`); else from one
    optimizer step to the next; else, where it is given when work was `launched`, ranges that hold it."""
    marks = (
        ("step", "ProfilerStep"),
        ("engine", ENGINE),
        ("iteration", "the program"),
    )
    for key, how in marks:
        ordered = sorted(collected.marks[key], key=lambda item: item[1])
        if ordered and (key != "iteration" or len(ordered) > 1):
            return _tiling(ordered, how)
    by_name: dict[int, list[int]] = defaultdict(list)
    for optimizer, _, end in collected.marks["optimizer"]:
        by_name[optimizer].append(end)
    counts = {len(ends) for ends in by_name.values()}
    if len(counts) != 1 or counts == {1}:
        return NO_STEPS if launched is None else _ranges(collected, np.sort(launched))
    # Several optimizers step one after the other: the last of them ends the step.
    ends = [max(group) for group in zip(*(sorted(ends) for ends in by_name.values()), strict=True)]
    return Steps(tuple(range(1, len(ends))), np.array(ends[:-1]), np.array(ends[1:]), how="optimizer steps")


def _ranges(collected: Collected, launched: Ps) -> Steps:
    """Ranges of one name that repeat and hold what was launched; within measured ranges where there are any, else
    these themselves.  launched: in order of time."""
    by_name: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for name, start, end in sorted(collected.marks["range"], key=lambda item: item[1]):
        if np.searchsorted(launched, end) > np.searchsorted(launched, start):
            by_name[_DIGITS.sub("#", collected.names.texts[name])].append((-1, start, end))
    named = {name: spans for name, spans in by_name.items() if not _NO_STEP.search(name)}
    measured = [span for name, spans in named.items() if _MEASURED.search(name) for span in spans]
    measured = [span for span in measured if not any(other != span and _within(other, [span]) for other in measured)]
    found: list[Steps] = []
    for spans in named.values():
        spans = [span for span in spans if not measured or (_within(span, measured) and span not in measured)]
        if len(spans) >= (2 if measured else 3):
            steps = _tiling(spans, "the program")
            first, last = np.searchsorted(launched, steps.starts), np.searchsorted(launched, steps.ends)
            held = int((last - first).sum())
            if held >= _HOLDS * (last[-1] - first[0]) and (measured or held >= _OF_ALL * len(launched)):
                found.append(steps)
    if found:
        return min(found, key=len)
    return _tiling(sorted(measured, key=lambda span: span[1]), MEASURED) if measured else NO_STEPS


def _within(span: tuple[int, int, int], outer: Sequence[tuple[int, int, int]]) -> bool:
    return any(start <= span[1] and span[2] <= end for _, start, end in outer)


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
