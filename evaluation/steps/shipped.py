"""The shipped profiles, read through XProf."""

from __future__ import annotations

from functools import cache

from experiments.ingest import read_profile
from experiments.samples.samples import FOLDER
from experiments.step_profile import StepProfile
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import read_config


@cache
def sample(name: str) -> tuple[StepProfile, ExperimentConfig]:
    folder = FOLDER / name
    config, _ = read_config(folder / "config.json")
    return read_profile(sorted(folder.glob("*.xplane.pb.gz"))), config
