"""The proposal as a configuration of our own, which every command and the upload page read back."""

from __future__ import annotations

import yaml

from perfmodel.config import ExperimentConfig
from perfmodel.config_file import config_to_json
from proposals.launch.file import Header, LaunchFile, comment


def file(config: ExperimentConfig, header: Header) -> LaunchFile:
    """Reads back as `config` itself (`perfmodel.config_file.read_config`)."""
    head = comment([*header.lines("Configuration", "the contract of the configuration file")[:-1],
                    "Check it with: asap predict THIS-FILE"])  # fmt: skip
    body = yaml.safe_dump(config_to_json(config), sort_keys=False, allow_unicode=True, width=100)
    return LaunchFile("config.yaml", "yaml", f"{head}\n{body}")
