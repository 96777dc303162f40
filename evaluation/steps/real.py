"""Profiles that somebody recorded: those that ship, and others where they are at hand (never in the repository)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from evaluation.steps import shipped
from experiments.ingest import read_profile
from experiments.ingest.errors import IngestError
from experiments.samples.samples import SAMPLES
from experiments.step_profile import StepProfile
from perfmodel.config import ExperimentConfig

SHARED, MORE = Path("/work/shared/profiles"), Path("/work/real")
#: Files larger than this are read by the benchmarks, not by tests.
MOST_BYTES = 1.5e6


def _sessions() -> Iterator[tuple[str, list[Path]]]:
    """(name, files of one session)."""
    training = sorted((SHARED / "xprof_tpu_training").glob("*.json.gz"))
    if training:
        yield "xprof_tpu_training", training
    for path in sorted((SHARED / "xprof_tpu_v6e_host_offload").glob("*.pb")):
        yield "xprof_tpu_v6e_host_offload", [path]
    seen: set[int] = set()
    for folder, pattern in (
        (SHARED, "*.xplane.pb"), (SHARED, "kineto/*.json.gz"), (MORE, "**/*.xplane.pb"),
        (MORE / "tracelens/tests/traces/h100", "*.json.gz"), (MORE / "tracelens/tests/traces/b200", "*.json.gz"),
        (MORE / "nsys/tests/fixtures", "*.sqlite"),
    ):  # fmt: skip
        for path in sorted(folder.glob(pattern)):
            size = path.stat().st_size
            if size <= MOST_BYTES and size not in seen:  # the same file may lie in both places
                seen.add(size)
                yield path.name.removesuffix(".gz"), [path]


@cache
def others() -> tuple[tuple[str, StepProfile], ...]:
    """Profiles of others that can be read here; empty where none are at hand."""
    profiles = []
    for name, files in _sessions():
        try:
            profiles.append((name, read_profile(files)))
        except IngestError:
            continue  # a format that is not read, or a file that is no profile: tests of the reader say which
    return tuple(profiles)


def profiles() -> Iterator[tuple[str, StepProfile, ExperimentConfig | None]]:
    """(name, profile, its configuration or None)."""
    for sample in SAMPLES:
        yield sample.key, *shipped.sample(sample.key)
    for name, profile in others():
        yield name, profile, None
