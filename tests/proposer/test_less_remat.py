"""What less rematerialisation is predicted to save, against the finding's bound: the time of the recomputed ops."""

from __future__ import annotations

import json

import pytest

from diagnosis.analyzer import diagnose
from experiments.ingest import read_profile
from experiments.samples.samples import SAMPLES
from perfmodel.config_file import parse_config
from proposals.candidate import Candidate
from proposals.proposer.pricer import Pricer


@pytest.mark.slow
@pytest.mark.parametrize("key", ["asap-experiment-1", "asap-experiment-3"])
@pytest.mark.parametrize("model", [None, {"name": "llama3.1-405b"}])
def test_no_more_is_saved_than_was_recomputed(key, model):
    sample = next(item for item in SAMPLES if item.key == key)
    given = json.loads(sample.config.read_text())
    if model is not None:
        given = {**given, "model": model, "training": {"seq_len": 4096, **given["training"]}}
    config, _ = parse_config(given)
    assert config.training.remat == "full"
    profile = read_profile(list(sample.files))
    diagnosis = diagnose(profile, config)
    bound = next(finding.saving_share for finding in diagnosis.findings if finding.rule == "recompute")
    assert bound is not None and bound > 0.15
    pricer = Pricer(profile, config, diagnosis)
    saved = {}
    for remat in ("none", "minimal"):
        speedup = pricer.evaluate(Candidate(config.mesh.to_json(), {"remat": remat})).predicted.speedup
        assert speedup is not None
        saved[remat] = 1.0 - 1.0 / speedup
    assert 0.5 * bound < saved["none"] <= bound + 1e-6
    assert saved["minimal"] <= saved["none"]
