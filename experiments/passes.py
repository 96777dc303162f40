"""Passes of a training step, by the framework paths of its ops."""

from __future__ import annotations

import re
from functools import lru_cache

FORWARD, BACKWARD, RECOMPUTE, OPTIMIZER = "forward", "backward", "recompute", "optimizer"
_RECOMPUTED = re.compile(r"rematted_computation|remat2")
#: Words that a kernel's name says its pass by; the first one counts, as the block sizes of all passes may follow.
_KERNEL = re.compile(r"(?<![a-z])(?:(fwd|forward)|(bwd|backward|dkv|dq|dk|dv))(?![a-z])")


@lru_cache(maxsize=65536)
def pass_of(path: str) -> str:
    """FORWARD, BACKWARD, RECOMPUTE or OPTIMIZER: the path's head, as traces of PyTorch are read, or what the wrappers
    of JAX in it say; empty where nothing does.

    JAX traces the backward rule of a `custom_vjp` in the scope that recomputes its forward rule, so that the kernels of
    both bear `rematted_computation`: there the kernel's own name tells (`splash_mha_dkv`, `flash_mha_bwd`).
    """
    head = path.partition("/")[0]
    if head in (FORWARD, BACKWARD, RECOMPUTE, OPTIMIZER):
        return head
    if again := _RECOMPUTED.search(path):
        kernel = _KERNEL.search(path, again.end())
        return BACKWARD if kernel and kernel[2] else RECOMPUTE
    if "transpose(" in path:
        return BACKWARD
    return FORWARD if "jvp(" in path else ""
