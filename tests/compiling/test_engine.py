"""Endings of the compiling process, and what is kept of them.  The compiler is scripted, its process is real."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from asapweb.cli import compile
from asapweb.user_error import UserError
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import parse_config
from proposals.compiling import engine, predicted, targets
from proposals.compiling.cache import Cache
from proposals.compiling.engine import Limits
from proposals.compiling.result import CompileCheck
from tests.compiling.scripted import steer

WORKER = "tests.compiling.scripted"


def config(**changes: Any) -> ExperimentConfig:
    found, _ = parse_config(
        {
            "hardware": {"chip": "v5e", "topology": [4, 4]} | changes.get("hardware", {}),
            "mesh": {"ici": changes.get("mesh", {"data": 4, "seq": 4})},
            "model": {"name": "llama3.2-1b"},
            "training": {"global_batch": 16, "seq_len": 4096} | changes.get("training", {}),
        }
    )
    return found


def check(monkeypatch: pytest.MonkeyPatch, script: str, **more: Any) -> CompileCheck:
    steer(monkeypatch, COMPILER=script)
    return engine.check(config(), worker=WORKER, **more)


def test_a_step_that_fits_says_its_memory_and_its_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[tuple[str, str]] = []
    found = check(monkeypatch, "fits", on_progress=lambda effort, stage: stages.append((effort, stage)))
    assert found.outcome == "fits" and found.effort == "quick"
    assert found.memory_bytes == 1.25e10
    assert found.capacity_bytes == pytest.approx(15.75 * 2**30)
    seen = [stage for stage in dict.fromkeys(stages) if stage != ("quick", "starting")]  # told of while it starts
    assert seen == [("quick", "tracing"), ("quick", "compiling")]
    (row, *others) = predicted.by_axis(config(), found)
    assert row.axes == ("data", "seq") and row.compiled == 3e10 and row.kinds == ("all-gather",)
    # Llama 3.2 1B (1.24e9 parameters) in bf16, gathered twice and its gradient scattered in float32 or bf16.
    assert row.predicted == pytest.approx(1.236e9 * (2 + 2 + 2), rel=0.5)
    assert [other.axes for other in others] == [("seq",)] and others[0].compiled is None


def test_out_of_memory_says_both_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = check(monkeypatch, "out of memory")
    assert (found.outcome, found.needed_bytes) == ("out_of_memory", 4e10)
    assert found.memory_bytes == 4e10 and found.capacity_bytes == pytest.approx(15.75 * 2**30)


def test_a_crash_is_tried_again_at_the_other_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    found = check(monkeypatch, "crash at quick effort")
    assert (found.outcome, found.effort) == ("fits", "default")
    found = check(monkeypatch, "crash")
    assert found.outcome == "crashed" and found.effort == "default"
    assert "while compiling (SIGSEGV)" in found.message


@pytest.mark.slow
def test_a_compiler_that_hangs_or_eats_the_memory_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    found = check(monkeypatch, "hang", limits=Limits(wall_s=(2, 2)))
    assert found.outcome == "timed_out" and "2 s" in found.message
    found = check(monkeypatch, "fill the memory", limits=Limits(memory_bytes=200 << 20))
    assert found.outcome == "crashed" and "memory" in found.message


def test_what_the_progress_raises_ends_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cancelled(Exception):
        pass

    def stop(effort: str, stage: str) -> None:
        if stage == "compiling":
            raise Cancelled

    with pytest.raises(Cancelled):
        check(monkeypatch, "hang", on_progress=stop)


def test_an_answer_is_kept_by_content(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    count = tmp_path / "count"
    steer(monkeypatch, COMPILER_COUNT=str(count))
    cache = Cache(tmp_path / "cache")
    first = check(monkeypatch, "fits", cache=cache)
    assert check(monkeypatch, "fits", cache=cache) == first
    assert count.read_text() == "quick\n"
    other = config(training={"remat": "minimal"})
    engine.check(other, worker=WORKER, cache=cache)
    assert count.read_text() == "quick\nquick\n"
    # A crash may be the machine's.
    check(monkeypatch, "crash", cache=Cache(tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_the_program_is_written_where_asked_even_if_the_answer_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache, file = Cache(tmp_path / "cache"), tmp_path / "step.hlo"
    known = check(monkeypatch, "fits", cache=cache)
    found = check(monkeypatch, "fits", cache=cache, hlo=file)
    assert file.read_text().startswith("HloModule") and found.peak_bytes == known.peak_bytes


def test_a_program_for_a_folder_that_is_not_there_is_refused_before_it_is_compiled(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    compile.add_parser(parser.add_subparsers())
    args = parser.parse_args(["compile", "run.yaml", "--hlo", str(tmp_path / "nowhere" / "step.hlo")])
    with pytest.raises(UserError, match=r"--hlo: no such folder: .*nowhere\."):
        compile.run(args)


@pytest.mark.parametrize(
    ("hardware", "says"),
    [
        ({"chip": "v5e", "topology": [3, 6]}, "no slice of 3x6 chips"),
        ({"chip": "v5p", "topology": [2, 3, 4]}, "no slice of 2x3x4 chips"),
        ({"chip": "tpu7x", "topology": [2, 2, 1]}, "does not support"),
    ],
)
def test_a_topology_that_does_not_exist_is_invalid(hardware: dict[str, Any], says: str) -> None:
    chips = 1
    for size in hardware["topology"]:
        chips *= size
    found = engine.check(config(hardware=hardware, mesh={"data": chips}), worker=WORKER)
    assert found.outcome == "invalid" and says in found.message


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is not None, reason="libtpu is installed here")
def test_without_the_extra_one_line_says_how_to_get_it() -> None:
    found = engine.check(config())
    assert found.outcome == "not_installed"
    assert targets.INSTALL in found.message and "\n" not in found.message


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra tpu (libtpu)")
def test_the_real_compiler_on_a_topology_that_is_not_here(tmp_path: Path) -> None:
    found = engine.check(config(), hlo=tmp_path / "step.hlo")
    assert found.outcome == "fits", found.message
    assert "is_scheduled=true" in (tmp_path / "step.hlo").read_text()
    states = 1.236e9 * 12 / 16
    assert found.argument_bytes == pytest.approx(states, rel=0.05)
    assert found.peak_bytes is not None and states < found.peak_bytes < 15.75 * 2**30
    axes = {use.axes for use in found.collectives}
    assert ("data", "seq") in axes and ("seq",) in axes
    large, _ = parse_config(
        {
            "hardware": {"chip": "v5e", "topology": [2, 4]},
            "mesh": {"ici": {"data": 8}},
            "model": {"name": "llama3.1-8b"},
            "training": {"global_batch": 16, "seq_len": 8192},
        }
    )
    found = engine.check(large)
    assert found.outcome == "out_of_memory"
    assert found.needed_bytes is not None and found.needed_bytes > 15.75 * 2**30
