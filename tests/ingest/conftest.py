from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.xplane import XSpace
from tests.ingest.xspaces import OpSpec, tpu_xspace

#: One step of 100 µs: a matmul, an all-reduce, a copy, and 10 µs of nothing.
OPS = (
    OpSpec("fusion.1", "convolution fusion", 1, 40, flops=2_000_000_000, bytes_accessed=20_000_000),
    OpSpec(
        "all-reduce.2",
        "all-reduce",
        42,
        30,
        bytes_accessed=1_000_000,
        hlo="%all-reduce.2 = f32[8]{0} all-reduce(f32[8]{0} %p), replica_groups={{0,1}}, to_apply=%add",
    ),
    OpSpec("copy.3", "copy", 75, 20, bytes_accessed=18_000_000),
)

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Write a profile (default: the one of OPS) under a name; returns its path."""

    def write(name: str = "host-0.xplane.pb", space: XSpace | None = None, **arguments: object) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((space or tpu_xspace(OPS, **arguments)).SerializeToString())  # type: ignore[arg-type]
        return path

    return write


@pytest.fixture(autouse=True)
def _own_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Private folders of this test are made where nobody else's are."""
    monkeypatch.setenv("ASAP_INGEST_FOLDER", str(tmp_path_factory.mktemp("ingest")))
