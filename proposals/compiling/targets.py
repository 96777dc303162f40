"""Which topologies can be compiled for, and what the compiler's process needs to know.

libtpu does not validate the sizes of a topology, so the real ones stand here (Google Cloud documentation of v5e, v6e,
v5p and v4; measured with libtpu 0.0.42.1, jax 0.10.2).
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

from perfmodel.chips import get_chip
from perfmodel.config import Hardware

#: What a user who wants the check runs; it shows the terms of libtpu and asks.
INSTALL = "bin/bootstrap tpu"
_NAMES = {"v4": "v4", "v5e": "v5e", "v5p": "v5p", "v6e": "v6e"}
_FLAT = ((2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))


@dataclass(frozen=True)
class Target:
    """A topology as `jax.experimental.topologies` takes it; None for GPUs, which are those at hand."""

    platform: str
    name: str = ""
    options: dict[str, Any] | None = None


def target(hardware: Hardware) -> Target | str:
    """The target of a configuration, or one sentence why there is none."""
    chip = get_chip(hardware.chip)
    if chip.kind == "gpu":
        return Target("gpu")
    if hardware.chip not in _NAMES:
        return f"The compile check does not support {chip.title}; it supports {', '.join(_NAMES)}."
    size = tuple(hardware.topology)
    if chip.ici_axes == 2:
        size = size + (1,) * (2 - len(size))
        if tuple(sorted(size)) not in _FLAT:
            known = ", ".join("x".join(map(str, flat)) for flat in _FLAT)
            return f"{chip.title} has no slice of {'x'.join(map(str, size))} chips; there are {known}."
    else:
        size = size + (1,) * (3 - len(size))
        if size != (2, 2, 1) and (any(s > 4 and s % 4 for s in size) or any(s not in (1, 2) and s % 4 for s in size)):
            return f"{chip.title} has no slice of {'x'.join(map(str, size))} chips; sizes are 2 or multiples of 4."
    wraps = tuple(chip.wraps(size))
    options: dict[str, Any] = {"wrap": [*wraps, *[False] * (3 - len(wraps))]}
    if hardware.slices > 1:
        options["num_slices"] = hardware.slices
    if hardware.chip == "v4":
        options["chip_config_name"] = "megacore"
    return Target("tpu", f"{_NAMES[hardware.chip]}:{'x'.join(map(str, size))}", options)


def installed(platform: str) -> bool:
    if platform == "tpu":
        return importlib.util.find_spec("libtpu") is not None
    return any(importlib.util.find_spec(f"jax_cuda{n}_plugin") is not None for n in (12, 13))


def not_installed(platform: str) -> str:
    """One line how to get the compiler."""
    if platform == "tpu":
        return f"The TPU compiler (libtpu) is not installed: `{INSTALL}` shows its terms and installs it."
    return (
        "JAX's CUDA plugin is missing in .venv: on the machine with the GPUs, run "
        '`.uv/bin/uv pip install "jax[cuda13]"`.'
    )


def environment(platform: str, quick: bool) -> dict[str, str]:
    """Variables of the compiling process.  Without hardware libtpu would look for a metadata server."""
    variables = {"JAX_OPTIMIZATION_LEVEL": "O1"} if quick else {}
    if platform == "gpu":
        # Compiling needs little memory of the GPU; the rest stays free for whoever uses it.
        return variables | {"JAX_PLATFORMS": "cuda", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    return variables | {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_ACCELERATOR_TYPE": "v5litepod-16",
        "TPU_WORKER_ID": "0",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
