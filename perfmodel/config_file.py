"""The configuration file: JSON or YAML in, `ExperimentConfig` out, and back.  Contract: docs/configuration.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from perfmodel.checks import complaints, shown, suggestion
from perfmodel.chips import load_chips
from perfmodel.config import ROLES, ConfigError, ExperimentConfig, Mesh, Training, product_errors
from perfmodel.config_schema import MISSING, ConfigFile, SoftwareFile, TrainingFile
from perfmodel.model_file import model_to_json
from perfmodel.strict_text import decode, parse_text
from perfmodel.workload import REMAT_OPEN

TRAINING_KEYS = tuple(TrainingFile.model_fields)


def read_config(source: Path | str | bytes) -> tuple[ExperimentConfig, list[str]]:
    """Configuration and warnings of a file (Path, or one line of text without braces) or of the text itself.

    Raises ConfigError naming the field at fault.
    """
    return parse_config(read_mapping(source))


def read_mapping(source: Path | str | bytes) -> dict[str, Any]:
    """The mapping a file or text holds, before any field is looked at.  Raises ConfigError."""
    if isinstance(source, bytes):
        return parse_text(decode(source))
    if isinstance(source, str) and ("\n" in source or source.lstrip()[:1] == "{" or ": " in source):
        return parse_text(source)
    path = Path(source)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError("", f"cannot read {shown(str(path))}: {error.strerror or 'it is not a file'}") from error
    except ValueError as error:
        raise ConfigError("", f"cannot read {shown(str(path))}: not a file name") from error
    return parse_text(decode(raw), yaml_only=path.suffix.lower() in (".yaml", ".yml"))


def parse_config(data: Mapping[str, Any]) -> tuple[ExperimentConfig, list[str]]:
    """Configuration and warnings of a mapping.  Raises the first ConfigError in the order of the form."""
    config, errors, warnings = _read(data)
    if config is None:
        raise errors[0]
    return config, warnings


def all_errors(data: Mapping[str, Any]) -> list[ConfigError]:
    """Every complaint at once, for a form; empty where `parse_config` succeeds."""
    return _read(data)[1]


def _read(data: Mapping[str, Any]) -> tuple[ExperimentConfig | None, list[ConfigError], list[str]]:
    warnings: list[str] = []
    try:
        return ConfigFile.model_validate(data, context=warnings).value(), [], warnings
    except ValidationError as error:
        return None, complaints(error, missing=MISSING), warnings


def read_training(config: ExperimentConfig, given: Mapping[str, Any]) -> Training:
    """The configuration's training with these keys read as the file's are.  Raises ConfigError naming the key."""
    try:
        read = TrainingFile.model_validate(given).value(load_chips().get(config.hardware.chip), config.mesh)
    except ValidationError as error:
        raise complaints(error, "training")[0] from error
    return replace(config.training, **{key: getattr(read, key) for key in given if key in TRAINING_KEYS})


def config_to_json(config: ExperimentConfig) -> dict[str, Any]:
    """The mapping that `parse_config` reads back as the same configuration; what is not given is left out."""
    hardware: dict[str, Any] = {"chip": config.hardware.chip, "topology": list(config.hardware.topology)}
    hardware["slices"] = config.hardware.slices
    if config.hardware.overrides:
        hardware["overrides"] = dict(config.hardware.overrides)
    mesh: dict[str, Any] = dict(config.mesh.to_json())
    if config.mesh.axis_roles:
        mesh["axis_roles"] = dict(config.mesh.axis_roles)
    training = {key: getattr(config.training, key) for key in TRAINING_KEYS}
    training["xla_flags"] = list(config.training.xla_flags)
    if config.extra.get(REMAT_OPEN) and config.training.remat == "none":
        training["remat"] = None
    result: dict[str, Any] = {"name": config.name, "hardware": hardware, "mesh": mesh}
    if config.model is not None:
        result["model"] = model_to_json(config.model)
    result["training"] = {key: value for key, value in training.items() if value is not None}
    given = {key: config.extra.get(f"software_{key}") for key in SoftwareFile.model_fields}
    if software := {key: text for key, text in given.items() if text is not None}:
        result["software"] = software
    if config.measured is not None:
        result["measured"] = {key: value for key, value in asdict(config.measured).items() if value is not None}
    if config.notes:
        result["notes"] = config.notes
    return result


def parse_mesh_argument(text: str, axis_roles: Mapping[str, str] | None = None) -> Mesh:
    """Mesh of `data=8,seq=16,model=2`, DCN axes as `dcn.data=2`.  Raises ConfigError on the field `--mesh`."""
    roles = dict(axis_roles or {})
    parts: dict[str, dict[str, int]] = {"ici": {}, "dcn": {}}
    for item in text.split(","):
        match = re.fullmatch(r"\s*(?:(ici|dcn)\.)?([A-Za-z][A-Za-z0-9_\-]{0,63})\s*=\s*(\d{1,8})\s*", item)
        if match is None:
            raise ConfigError("--mesh", f"{shown(item)} is not axis=size; write data=8,seq=16,model=2")
        part, axis, size = parts[match[1] or "ici"], match[2], int(match[3])
        if axis in part:
            raise ConfigError("--mesh", f"the axis {axis!r} is given twice")
        if axis not in ROLES and axis not in roles:
            raise ConfigError("--mesh", f"the axis {axis!r} has no known role{suggestion(axis, ROLES)}")
        if size < 1:
            raise ConfigError("--mesh", f"the axis {axis!r} has size {size}; give at least 1")
        part[axis] = size
    if not parts["ici"]:
        raise ConfigError("--mesh", "names no axis inside the slice; write data=8,seq=16,model=2")
    named = {axis: role for axis, role in roles.items() if axis in parts["ici"] or axis in parts["dcn"]}
    return Mesh(tuple(parts["ici"].items()), tuple(parts["dcn"].items()), MappingProxyType(named))


def with_mesh(config: ExperimentConfig, mesh: Mesh) -> ExperimentConfig:
    """The configuration on another mesh of the same chips; without DCN axes the mesh keeps the configuration's.

    What was measured stays with the mesh it was measured on.  Raises ConfigError where a product does not match.
    """
    if not mesh.dcn:
        mesh = replace(mesh, dcn=config.mesh.dcn, axis_roles={**config.mesh.axis_roles, **mesh.axis_roles})
    if errors := product_errors(mesh, config.hardware):
        raise ConfigError("--mesh", str(errors[0]))
    same = (mesh.ici, mesh.dcn) == (config.mesh.ici, config.mesh.dcn)
    return replace(config, mesh=mesh, measured=config.measured if same else None)
