"""The proposal as a configuration of our own, which every command and the upload page read back."""

from __future__ import annotations

import re

import yaml

from perfmodel.config import ExperimentConfig, micro_batches
from perfmodel.config_file import config_to_json
from proposals.launch.file import Header, LaunchFile, comment

#: Text that no reader of YAML, whatever its version, takes for a number.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9 _.-]*")


class _Dumper(yaml.SafeDumper):
    """Writes text in double quotes unless it is plainly text: `0E0` is a number to some readers and not to others."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if _PLAIN.fullmatch(value) else '"')


_Dumper.add_representer(str, _text)


def file(config: ExperimentConfig, header: Header) -> LaunchFile:
    """Reads back as `config` itself (`perfmodel.config_file.read_config`)."""
    head = comment([*header.lines("Configuration", "the schema of the configuration file")[:-1],
                    "Check it with: asap predict THIS-FILE"])  # fmt: skip
    data = config_to_json(config)
    if config.training.micro_batch and config.training.global_batch:  # which decides; both then say the same
        data["training"]["grad_accum"] = int(micro_batches(config.training, config.mesh))
    body = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return LaunchFile("config.yaml", "yaml", f"{head}\n{body}")
