"""Answers of the compiler, kept by content in a folder: the same step for the same topology is compiled once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Self

from perfmodel.config import ExperimentConfig
from perfmodel.config_file import config_to_json
from proposals.compiling.result import CHECK, CompileCheck

ROOT = Path(__file__).resolve().parents[2]
#: What the compiled step does not depend on.
_BESIDE = ("name", "notes", "measured", "software")


@lru_cache(maxsize=1)
def _sources() -> str:
    """Hash of the code that decides the answer: the reference step, the scheme of its arrays, the reading of HLO."""
    digest = hashlib.sha256()
    files = [
        *ROOT.glob("reference_step/*.py"),
        ROOT / "reference_step/sharded_arrays.py",
        *ROOT.glob("experiments/hlo/*.py"),
    ]
    for path in sorted([*files, *ROOT.glob("proposals/compiling/*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def key_of(config: ExperimentConfig, step: str | None, effort: str, worker: str = "") -> str:
    """Hash of everything that the answer depends on: configuration, step, versions, effort.

    The user's own step is named, not read: whoever changes it clears the cache.
    """
    content = {key: value for key, value in config_to_json(config).items() if key not in _BESIDE}
    packages = {name: _version(name) for name in ("jax", "jaxlib", "libtpu")}
    parts = [content, step, effort, packages, _sources(), worker]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class Cache:
    """One file per answer; a file that cannot be read counts as none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_user(cls) -> Self:
        """Of the command line, which has no data folder."""
        return cls(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "asap" / "compile")

    def get(self, key: str) -> CompileCheck | None:
        with contextlib.suppress(OSError, ValueError):
            return CHECK.read(json.loads((self.folder / f"{key}.json").read_text()))
        return None

    def put(self, key: str, checked: CompileCheck) -> None:
        """A cache that cannot be written is none: the answer stands all the same."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self.folder, delete=False) as file:
                json.dump(CHECK.write(checked), file)
            os.replace(file.name, self.folder / f"{key}.json")
