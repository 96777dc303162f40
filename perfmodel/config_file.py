"""The configuration file: JSON or YAML in, `ExperimentConfig` out, and back.  Contract: docs/configuration.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from formatting import compared, plain
from perfmodel.catalogue import model_to_json, read_model
from perfmodel.chips import PRECISIONS, Chip, get_chip, load_chips
from perfmodel.config import (
    REMAT_OPEN,
    ROLES,
    ConfigError,
    ExperimentConfig,
    Hardware,
    Measured,
    Mesh,
    ModelShape,
    Training,
    product_errors,
)
from perfmodel.reading import (
    Bool,
    Complaints,
    FilePart,
    Positive,
    Whole,
    choice,
    complaints,
    decode,
    mapping,
    parse_text,
    shown,
    suggestion,
    warn,
)
from perfmodel.workload import MOMENT_BYTES, chip_of

PRECISION_NAMES = {name: name for name in PRECISIONS} | {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "fp8_full": "fp8",
    "fp8_cs": "fp8",
    "fp8_mx": "mxfp8",
}
SHARDING_NAMES = {name: name for name in ("none", "zero1", "fsdp")} | {"zero_1": "zero1", "zero3": "fsdp"}
REMAT_NAMES = {name: name for name in ("none", "minimal", "full", "offload")} | {"selective": "minimal"}
OPTIMIZERS = tuple(MOMENT_BYTES)

MAX_CHIPS = 10_000_000
MAX_BATCH = 1_000_000_000
MAX_TOKENS = 1_000_000_000
#: No optimizer step of a day; and no program that trains holds less than a megabyte of device memory.
LONGEST_STEP_S = 86_400.0
LEAST_PEAK_BYTES = 1e6
_AXIS_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,63}")
_DATE = re.compile(r"(20\d\d)(?:-(0[1-9]|1[0-2])(?:-([0-2]\d|3[01]))?)?")

#: What to give where a key is missing.
MISSING = {
    "hardware": "give chip and topology, e.g. {chip: v5e, topology: [16, 16]}",
    "hardware.chip": "known chips: " + " ".join(load_chips()),
    "hardware.topology": "give the chips per dimension, e.g. [16, 16]",
    "mesh": "give the mesh axes, e.g. {ici: {data: 16, model: 16}}",
    "mesh.ici": "give the size of each axis, e.g. {data: 16, model: 16}",
}


def _chip(value: Any) -> Chip:
    if not isinstance(value, str):
        raise ValueError(f"must be the name of a chip, not {shown(value)}")
    try:
        return get_chip(value)
    except KeyError:
        hint = suggestion(value, list(load_chips())) or "; known: " + " ".join(load_chips())
        raise ValueError(f"{shown(value)} is not a known chip{hint}") from None


def _dimensions(value: Any) -> Any:
    """`4x4` and `4` are also understood."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}(x\d{1,9})*", value.strip().lower()):
        value = [int(part) for part in value.strip().lower().split("x")]
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= 3:
        raise ValueError(f"must be a list of one to three numbers, not {shown(value)}")
    return value


def _axes(value: Any) -> Any:
    for axis in mapping(value):
        if not _AXIS_NAME.fullmatch(axis):
            raise ValueError(f"has the axis {shown(axis)}; a name is a letter, then letters, digits, _ or -")
    if len(value) > 16:
        raise ValueError(f"has {len(value)} axes; at most 16")
    return value


Size = Annotated[Whole, Field(ge=1, le=MAX_CHIPS)]
Axes = Annotated[dict[str, Size], BeforeValidator(_axes)]
Roles = Annotated[dict[str, Annotated[str, choice({role: role for role in ROLES})]], BeforeValidator(mapping)]
Rate = Annotated[Positive, Field(le=1e21)]
ShortText = Annotated[str, Field(max_length=100)]


class OverridesFile(FilePart):
    """Values of the chip that a site may replace.  SI units, bandwidths one-way; `dcn_bytes_per_s` is per host."""

    PATH = "hardware.overrides"
    peak_flops_per_s: Rate | None = None
    peak_bf16_flops_per_s: Rate | None = None
    hbm_bytes: Rate | None = None
    hbm_bytes_per_s: Rate | None = None
    host_link_bytes_per_s: Rate | None = None
    ici_bytes_per_s: Rate | None = None
    ici_link_bytes_per_s: Rate | None = None
    nvlink_bytes_per_s: Rate | None = None
    dcn_bytes_per_s: Rate | None = None
    dcn_bytes_per_s_per_host: Rate | None = None


class HardwareFile(FilePart):
    PATH = "hardware"
    chip: Annotated[Chip, PlainValidator(_chip)]
    topology: Annotated[tuple[Size, ...], BeforeValidator(_dimensions)]
    slices: Size = 1
    overrides: OverridesFile = OverridesFile()

    @model_validator(mode="after")
    def _topology_of_the_chip(self, info: ValidationInfo) -> HardwareFile:
        chip, dimensions = self.chip, len(self.topology)
        if chip.nvlink_domain and (joined := self.topology[0]) > chip.nvlink_domain:
            machines = f"[{chip.nvlink_domain}, {joined // chip.nvlink_domain}]"
            text = f"has {joined} GPUs in one NVLink domain, {chip.title} usually {chip.nvlink_domain}"
            warn(info.context, "hardware.topology", f"{text}; write {machines} where a network is between them")
        if chip.kind == "gpu" and dimensions > 2:
            text = "of GPUs is [GPUs per NVLink domain, domains]; give one or two numbers"
        elif chip.kind == "tpu" and dimensions > chip.ici_axes:
            text = f"has {dimensions} dimensions; {chip.title} is a {chip.ici_axes}D torus"
        elif prod(self.topology) * self.slices > MAX_CHIPS:
            text = f"times slices is more than the maximum of {MAX_CHIPS:,} chips"
        else:
            return self
        raise ConfigError("hardware.topology", text)

    def value(self) -> Hardware:
        overrides = MappingProxyType(self.overrides.model_dump(exclude_none=True))
        return Hardware(self.chip.name, self.topology, self.slices, overrides)


class MeshFile(FilePart):
    PATH = "mesh"
    ici: Annotated[Axes, Field(min_length=1)]
    dcn: Axes = {}
    axis_roles: Roles = {}


class TrainingFile(FilePart):
    """Of what is not given, `value` knows the default."""

    PATH = "training"
    global_batch: Whole | None = Field(default=None, ge=1, le=MAX_BATCH)
    seq_len: Whole | None = Field(default=None, ge=1, le=MAX_TOKENS)
    precision: Annotated[str, choice(PRECISION_NAMES)] | None = None
    optimizer: Annotated[str, Field(max_length=60)] | None = None
    weight_sharding: Annotated[str, choice(SHARDING_NAMES)] | None = None
    remat: Annotated[str, choice(REMAT_NAMES)] | None = None
    grad_accum: Whole | None = Field(default=None, ge=1, le=MAX_BATCH)
    micro_batch: Whole | None = Field(default=None, ge=1, le=MAX_BATCH)
    virtual_stages: Whole | None = Field(default=None, ge=1, le=10_000)
    sequence_parallel: Bool | None = None
    loss_parallel: Bool | None = None
    xla_flags: tuple[str, ...] | None = None

    @field_validator("optimizer")
    @classmethod
    def _is_known(cls, name: str | None, info: ValidationInfo) -> str | None:
        if name and name.lower() not in OPTIMIZERS:
            text = f"{shown(name.lower())} is unknown; its state is assumed to be two fp32 moments"
            warn(info.context, "training.optimizer", text)
        return name.lower() if name else None

    @field_validator("xla_flags", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        flags = value.split() if isinstance(value, str) else value
        if not isinstance(flags, list | tuple) or any(not isinstance(flag, str) for flag in flags):
            raise ValueError(f"must be a list of strings, not {shown(value)}")
        if len(flags) > 1000 or any(len(flag) > 1000 for flag in flags):
            raise ValueError("has too many flags or one that is too long; at most 1,000 of either")
        return flags

    def value(self, chip: Chip | None, mesh: Mesh | None) -> Training:
        return replace(default_training(chip, mesh), **self.model_dump(exclude_none=True))


def default_training(chip: Chip | None, mesh: Mesh | None) -> Training:
    """Training where nothing is said.

    TPU frameworks shard weights fully and recompute each layer; Megatron on GPUs shards the optimizer (ZeRO-1) and
    recomputes nothing, unless the mesh has an `fsdp` axis.
    """
    if chip is None or chip.kind == "tpu":
        return Training()
    fully = mesh is not None and mesh.size("fsdp") > 1
    return Training(weight_sharding="fsdp" if fully else "zero1", remat="none")


class SoftwareFile(FilePart):
    PATH = "software"
    framework: ShortText | None = None
    date: ShortText | None = None
    version: ShortText | None = None

    @field_validator("date")
    @classmethod
    def _is_a_date(cls, text: str | None) -> str | None:
        if text and not _DATE.fullmatch(text.strip()):
            raise ValueError(f"is {shown(text)}; write 2025, 2025-10 or 2025-10-31")
        return text

    def extra(self) -> dict[str, Any]:
        """What was given, and `software_year` (2025.75 for 2025-10), for a model that knows how releases differ."""
        extra: dict[str, Any] = {f"software_{key}": text for key, text in self if text}
        if match := _DATE.fullmatch((self.date or "").strip()):
            extra["software_year"] = int(match[1]) + (int(match[2] or 7) - 1) / 12
        return extra


class MeasuredFile(FilePart):
    PATH = "measured"
    step_time_s: Positive | None = Field(default=None, le=LONGEST_STEP_S)
    peak_memory_bytes: Positive | None = Field(default=None, le=1e15)


class ConfigFile(FilePart):
    """The whole file; the order of its fields is that of the complaints."""

    PATH: ClassVar[str] = ""
    hardware: HardwareFile
    axis_roles: Roles = {}
    mesh: MeshFile
    model: ModelShape | None = None
    training: TrainingFile = TrainingFile()
    name: str = Field(default="", max_length=300)
    notes: str = Field(default="", max_length=100_000)
    software: SoftwareFile = SoftwareFile()
    measured: MeasuredFile = MeasuredFile()

    @field_validator("mesh")
    @classmethod
    def _fits_the_hardware(cls, given: MeshFile, info: ValidationInfo) -> MeshFile:
        roles = {**info.data.get("axis_roles", {}), **given.axis_roles}
        wrong = _without_role(given, roles)
        if not wrong and (hardware := info.data.get("hardware")) is not None:
            wrong = product_errors(_mesh(given, roles), hardware.value())
        for axis in roles.keys() - given.ici.keys() - given.dcn.keys():
            warn(info.context, f"mesh.axis_roles.{axis[:40]}", "names an axis the mesh does not have; ignored")
        if wrong:
            raise Complaints(wrong)
        return given

    @field_validator("model", mode="plain")
    @classmethod
    def _shape(cls, value: Any, info: ValidationInfo) -> ModelShape | None:
        return read_model(value, warnings=info.context)

    @field_validator("notes", mode="before")
    @classmethod
    def _free(cls, value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)

    @field_validator("measured")
    @classmethod
    def _fits_the_memory(cls, given: MeasuredFile, info: ValidationInfo) -> MeasuredFile:
        peak, field = given.peak_memory_bytes, "measured.peak_memory_bytes"
        if peak is not None and peak < LEAST_PEAK_BYTES:
            raise ConfigError(field, f"is {plain(peak, 'bytes')}; give bytes per chip, 61.5 GB as 61.5e9")
        if peak is not None and (given_hardware := info.data.get("hardware")) is not None:
            hardware = given_hardware.value()
            chip = chip_of(hardware)
            if peak > (memory := max(chip.hbm_bytes, hardware.overrides.get("hbm_bytes", 0.0))):
                text = "is {}, more than the {} of one".format(*compared(peak, memory, "bytes"))
                raise ConfigError(field, f"{text} {chip.name}; give the peak per chip")
        return given

    def value(self) -> ExperimentConfig:
        hardware = self.hardware.value()
        mesh = _mesh(self.mesh, {**self.axis_roles, **self.mesh.axis_roles})
        training = self.training.value(self.hardware.chip, mesh)
        extra = self.software.extra()
        if self.hardware.chip.kind == "gpu" and training.remat == "none" and self.training.remat is None:
            extra[REMAT_OPEN] = True
        measured = Measured(**dict(self.measured))
        return ExperimentConfig(
            hardware, mesh, self.model, training, self.name, self.notes, MappingProxyType(extra),
            measured if measured != Measured() else None,
        )  # fmt: skip


def _without_role(given: MeshFile, roles: Mapping[str, str]) -> list[ConfigError]:
    return [
        ConfigError(
            f"mesh.{part}.{axis}",
            f'is not a known role{suggestion(axis, ROLES)}; add "axis_roles": {{"{axis}": ROLE}} with ROLE one of '
            f"{' '.join(ROLES)}",
        )
        for part, axes in (("ici", given.ici), ("dcn", given.dcn))
        for axis in axes
        if axis not in ROLES and axis not in roles
    ]


def _mesh(given: MeshFile, roles: Mapping[str, str]) -> Mesh:
    named = {axis: role for axis, role in roles.items() if axis in given.ici or axis in given.dcn}
    return Mesh(tuple(given.ici.items()), tuple(given.dcn.items()), MappingProxyType(named))


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


def read_mesh(config: ExperimentConfig, given: Mapping[str, Any]) -> Mesh:
    """The mesh of {"ici": {axis: size}, "dcn": {…}} as the file's is read, with the configuration's roles and, without
    `dcn`, its sizes there.  Raises ConfigError naming the key."""
    for key in given.keys() - {"ici", "dcn"}:
        raise ConfigError(f"mesh.{key[:40]}", "is not known; a mesh has ici and dcn")
    mesh = _read_mesh(given, config.mesh.axis_roles)
    return replace(mesh, dcn=mesh.dcn or config.mesh.dcn, axis_roles=config.mesh.axis_roles)


def _read_mesh(given: Mapping[str, Any], roles: Mapping[str, str]) -> Mesh:
    try:
        read = MeshFile.model_validate(given)
    except ValidationError as error:
        raise complaints(error, "mesh", MISSING)[0] from error
    for wrong in _without_role(read, roles):
        raise wrong
    return _mesh(read, roles)


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
    parts: dict[str, dict[str, int]] = {"ici": {}, "dcn": {}}
    for item in text.split(","):
        match = re.fullmatch(r"\s*(?:(ici|dcn)\.)?([^.=]+?)\s*=\s*(\d{1,8})\s*", item)
        if match is None:
            raise ConfigError("--mesh", f"{shown(item)} is not axis=size; write data=8,seq=16,model=2")
        part = parts[match[1] or "ici"]
        if match[2] in part:
            raise ConfigError("--mesh", f"the axis {match[2]!r} is given twice")
        part[match[2]] = int(match[3])
    try:
        return _read_mesh(parts, axis_roles or {})
    except ConfigError as error:
        raise ConfigError("--mesh", str(error)) from error


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
