"""Trials as a process of this machine: its result, its log, its end."""

from __future__ import annotations

import sys
from io import BytesIO

import pytest

from campaigns.backends import Local, Stopped
from perfmodel.config_file import parse_config
from proposals.failures import read_failure
from tests.backend.factories import CONFIG

RAN = """print('{"warm_up": 1, "step_times_s": [9.0, 1.0, 1.2, 1.1], "peak_memory_bytes": 5e9, "failure": null}')"""
BROKE = "import sys; sys.stderr.write('RESOURCE_EXHAUSTED: Out of memory allocating 1234567890 bytes.\\n'); sys.exit(1)"
SAID = """print('{"step_times_s": [], "failure": "RESOURCE_EXHAUSTED: Out of memory allocating 1234567890 bytes."}')"""
READS = (
    "import json, sys; print(json.dumps({'step_times_s': [json.load(open(sys.argv[1]))['training']['global_batch']]}))"
)


def config():
    return parse_config(CONFIG)[0]


def local(code: str, **more: float) -> Local:
    return Local(command=(sys.executable, "-c", code), **more)


def never() -> bool:
    return False


def test_step_times_after_warm_up_and_memory_are_taken_from_the_last_line():
    outcome = local(RAN).measure(config(), never)
    assert outcome.step_times_s == (1.0, 1.2, 1.1)
    assert outcome.peak_bytes == 5e9


def test_the_program_is_given_the_configuration():
    assert local(READS).measure(config(), never).step_times_s == (float(CONFIG["training"]["global_batch"]),)


@pytest.mark.parametrize("code", [BROKE, SAID])
def test_what_a_failed_program_wrote_is_its_log(code):
    outcome = local(code).measure(config(), never)
    assert not outcome.step_times_s
    assert read_failure(BytesIO(outcome.log.encode()), config()).cause == "out_of_memory"


def test_a_program_that_says_nothing_failed():
    assert "wrote nothing" in local("raise SystemExit(3)").measure(config(), never).log


def test_a_trial_that_takes_too_long_is_ended_and_read_as_such():
    outcome = local("import time; time.sleep(600)", most_s=0.5).measure(config(), never)
    assert read_failure(BytesIO(outcome.log.encode()), config()).cause in ("time_out", "unknown")
    assert "Timed out" in outcome.log


def test_a_cancelled_trial_ends_its_process():
    with pytest.raises(Stopped):
        local("import time; time.sleep(600)").measure(config(), lambda: True)
