"""Compiled programs as landscapes: what their price is made of, and that a campaign can be played on them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from evaluation.campaigns.compiled_programs import (
    CLOCKS,
    collectives_s,
    landscapes,
    read_program,
    rows,
    step_time_s,
)
from evaluation.campaigns.recorded import LEAST_RAN
from perfmodel.chips import get_chip
from perfmodel.config_file import parse_config
from proposals.compiling.result import CollectiveUse

#: A loop of three trips around a fusion of 100 cycles, 7 cycles before it, an instruction without an estimate, and a
#: fusion whose inside has estimates of its own.
PROGRAM = """HloModule step, is_scheduled=true

%inside (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %double = f32[8]{0} add(%p, %p), backend_config={"estimated_cycles":"40"}
}

%body (state: (s32[], f32[8])) -> (s32[], f32[8]) {
  %state = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = f32[8]{0} get-tuple-element(%state), index=1
  %y = f32[8]{0} fusion(%x), kind=kLoop, calls=%inside, backend_config={"estimated_cycles":"100"}
  ROOT %next = (s32[], f32[8]{0}) tuple(%i, %y)
}

%condition (state.1: (s32[], f32[8])) -> pred[] {
  %state.1 = (s32[], f32[8]{0}) parameter(0)
  ROOT %go = pred[] constant(true)
}

ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %zero = s32[] constant(0)
  %copied = f32[8]{0} copy(%a), backend_config={"estimated_cycles":"7"}
  %start = (s32[], f32[8]{0}) tuple(%zero, %copied)
  %loop = (s32[], f32[8]{0}) while(%start), condition=%condition, body=%body, backend_config=TRIPS
  %out = f32[8]{0} get-tuple-element(%loop), index=1
  ROOT %sent = f32[8]{0} all-reduce(%out), channel_id=1, backend_config={"estimated_cycles":"9223372036854775807"}
}
""".replace("TRIPS", '{"known_trip_count":{"n":"3"}}')
CONFIG = parse_config(
    {
        "hardware": {"chip": "v5e", "topology": [4, 4]},
        "mesh": {"ici": {"data": 4, "model": 4}},
        "model": {"name": "llama3.2-1b"},
        "training": {"global_batch": 16, "seq_len": 4096},
    }
)[0]


def gather(payload: float, times: int) -> CollectiveUse:
    return CollectiveUse("all-gather", ("model",), 4, payload, times, 0.75 * payload * times, "")


def test_cycles_count_as_often_as_instructions_run_and_fusions_once() -> None:
    assert read_program(CONFIG, PROGRAM, ())["cycles"] == 7 + 3 * 100


def test_the_same_collective_adds_up_and_takes_the_time_of_its_links() -> None:
    kept = read_program(CONFIG, PROGRAM, (gather(1e9, 32), gather(1e9, 32), gather(5e8, 1)))["collectives"]
    assert sorted(kept) == [["all-gather", ["model"], 5e8, 1], ["all-gather", ["model"], 1e9, 64]]
    # 4 of 4 chips, no wrap on a 4x4 of v5e: 3 of 4 parts over one link in each direction.
    link = get_chip("v5e").ici_link_bytes_per_s
    once = collectives_s(CONFIG, [["all-gather", ["model"], 1e9, 1]])
    assert 0.75e9 / (2 * link) <= once <= 0.75e9 / link
    assert collectives_s(CONFIG, kept) == pytest.approx(64.5 * once, rel=0.01)


def test_clocks_are_those_of_the_peak() -> None:
    """Scaling book 2: 4 MXUs of 128 x 128 on v5e, 8 on v5p; 4 of 256 x 256 on v6e; a multiply-add is two."""
    for chip, units, side in (("v5e", 4, 128), ("v5p", 8, 128), ("v6e", 4, 256)):
        assert 2 * units * side**2 * CLOCKS[chip] == pytest.approx(get_chip(chip).peak("bf16"), rel=0.01)


def test_at_least_two_hundred_programs_were_priced() -> None:
    assert len(rows()) >= 200
    assert all(step_time_s(row) > 0 for row in rows() if row["outcome"] == "fits")
    configs = [json.dumps(row["config"], sort_keys=True) for row in rows()]
    assert len(set(configs)) == len(configs)


def test_a_campaign_can_be_played_on_each() -> None:
    for landscape in landscapes():
        assert np.isfinite(landscape.time_s).sum() >= LEAST_RAN and landscape.candidates.legal.all(), landscape.name
        for row, failure in enumerate(landscape.failures):
            assert (failure is None) == bool(np.isfinite(landscape.time_s[row])), landscape.name
            assert failure is None or failure.cause == "out_of_memory"
        start = landscape.starts[0]
        assert landscape.seen_from(start).time_s[start] == pytest.approx(landscape.time_s[start]), landscape.name
