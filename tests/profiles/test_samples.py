"""The shipped profiles are complete, small, labelled, and hold no answer."""

from __future__ import annotations

import gzip
import json

import pytest

from experiments.samples.samples import SAMPLES, Sample
from experiments.step_profile import PROVENANCES
from experiments.xplane import XSpace
from perfmodel.config_file import read_config

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.key)


@every_sample
def test_files_are_there_and_small(sample: Sample) -> None:
    assert sample.files
    assert all(file.stat().st_size < 1.5e6 for file in sample.files)
    hosts = [tuple(XSpace.FromString(gzip.decompress(file.read_bytes())).hostnames) for file in sample.files]
    assert len(set(hosts)) == len(sample.files)


@every_sample
def test_configuration_reads_without_a_warning(sample: Sample) -> None:
    config, warnings = read_config(sample.config)
    assert warnings == []
    assert config.hardware.chips == config.mesh.ici_product


@every_sample
def test_label_says_how_it_came_to_be(sample: Sample) -> None:
    assert sample.provenance in PROVENANCES
    word = "reconstructed from the paper" if sample.provenance == "reconstructed" else "recorded on 8 CPU devices"
    assert sample.label.startswith(word)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.provenance == "measured"], ids=lambda s: s.key)
def test_recordings_hold_one_program_and_the_ops_of_eight_devices(sample: Sample) -> None:
    space = XSpace.FromString(gzip.decompress(sample.files[0].read_bytes()))
    programs = [m.name for p in space.planes if p.name == "/host:metadata" for m in p.event_metadata.values()]
    assert len(programs) == 1
    devices = set()
    for plane in space.planes:
        names = {key: meta.name for key, meta in plane.stat_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                stats = {names[s.metadata_id]: s for s in event.stats}
                if "hlo_op" in stats:
                    devices.add(stats["device_ordinal"].int64_value or stats["device_ordinal"].uint64_value)
    assert devices == set(range(8))


def test_the_papers_better_meshes_of_experiments_2_and_3_are_nowhere() -> None:
    for key, better in (("asap-experiment-2", {"seq": 1, "model": 4}), ("asap-experiment-3", {"data": 8, "model": 2})):
        sample = next(s for s in SAMPLES if s.key == key)
        text = sample.config.read_text()
        assert not better.items() <= json.loads(text)["mesh"]["ici"].items()
