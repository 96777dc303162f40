"""Environment of every process that we start: `environment` builds it from a list of what the process needs.

A variable that no need names reaches no child, whoever set it: database address, secret key and keys of models are in
the environment of the server, and children run the code of libraries, of teams and of clusters.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

#: Names of variables; `*` stands for any characters.
Need = tuple[str, ...]

#: What a program needs to find its files and to know its user and language.
SYSTEM: Need = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TZ", "TMPDIR")
#: What our own modules need where they are not installed.
PYTHON: Need = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
#: What the drivers of devices read, and what JAX and its compilers do.
DEVICES: Need = ("LD_LIBRARY_PATH", "CUDA_*", "NVIDIA_*", "NCCL_*", "ROCR_*", "HIP_*")
JAX: Need = ("JAX_*", "XLA_*", "TPU_*", "LIBTPU_*")
#: What Slurm's commands read.  SLURM_JWT is a credential of the server: an installation that needs it says so.
SLURM: Need = ("SLURM_CONF", "SLURM_CLUSTERS")
EVERYTHING: Need = ("*",)


def environment(*needs: Need, values: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of this process that `needs` name, with `values` in place of or beside them."""
    patterns = [pattern for need in needs for pattern in need]
    return {name: value for name, value in os.environ.items() if _named(name, patterns)} | dict(values or {})


def _named(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def confined(folder: Path) -> dict[str, str]:
    """Return the environment of a process that reads files of strangers in `folder`: nothing of ours."""
    return {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        # One arena per thread would spend the address space, which is what is limited.
        "MALLOC_ARENA_MAX": "2",
    }
