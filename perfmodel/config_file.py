"""The configuration file: JSON or YAML in, `ExperimentConfig` out, and back.  Contract: docs/configuration.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

from perfmodel.checks import Checker, shown, suggestion
from perfmodel.chips import PRECISIONS, Chip, get_chip, load_chips
from perfmodel.config import ROLES, ConfigError, ExperimentConfig, Hardware, Mesh, Training
from perfmodel.measured_file import measured_to_json, read_measured
from perfmodel.model_file import model_to_json, read_model
from perfmodel.strict_text import decode, parse_text
from perfmodel.workload import REMAT_OPEN

TOP_KEYS = ("name", "notes", "hardware", "mesh", "model", "training", "axis_roles", "software", "measured")
HARDWARE_KEYS = ("chip", "topology", "slices", "overrides")
MESH_KEYS = ("ici", "dcn", "axis_roles")
TRAINING_KEYS = tuple(Training.__dataclass_fields__)
SOFTWARE_KEYS = ("framework", "date", "version")
#: Values of the chip that a site may replace.  SI units, bandwidths one-way; `dcn_bytes_per_s` is per host.
OVERRIDE_KEYS = (
    "peak_flops_per_s",
    "peak_bf16_flops_per_s",
    "hbm_bytes",
    "hbm_bytes_per_s",
    "host_link_bytes_per_s",
    "ici_bytes_per_s",
    "ici_link_bytes_per_s",
    "nvlink_bytes_per_s",
    "dcn_bytes_per_s",
    "dcn_bytes_per_s_per_host",
)
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
OPTIMIZERS = ("adamw", "adam", "adafactor", "sgd", "momentum", "lion", "muon")

MAX_CHIPS = 10_000_000
MAX_BATCH = 1_000_000_000
MAX_TOKENS = 1_000_000_000
_AXIS_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,63}")


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
    config, check = _read(data)
    if check.errors or config is None:
        raise check.errors[0]
    return config, check.warnings


def all_errors(data: Mapping[str, Any]) -> list[ConfigError]:
    """Every complaint at once, for a form; empty where `parse_config` succeeds."""
    return _read(data)[1].errors


def _read(data: Mapping[str, Any]) -> tuple[ExperimentConfig | None, Checker]:
    check = Checker()
    if not isinstance(data, Mapping):
        check.fail("", "the configuration must be a mapping of keys to values")
        return None, check
    data = check.mapping("", data)
    check.unknown_keys("", data, TOP_KEYS)
    chip, hardware = _hardware(check, data)
    mesh = _mesh(check, data, hardware)
    model = read_model(check, data.get("model"))
    training = _training(check, check.mapping("training", data.get("training")), chip, mesh)
    name = check.text("name", data.get("name"), limit=300)
    notes = check.text("notes", _free_text(data.get("notes")), limit=100_000)
    extra = _software(check, check.mapping("software", data.get("software")))
    measured = read_measured(check, data.get("measured"), hardware)
    if chip is not None and chip.kind == "gpu" and training.remat == "none" and not _given(data, "training", "remat"):
        extra = MappingProxyType({**extra, REMAT_OPEN: True})
    if check.errors or hardware is None or mesh is None:
        return None, check
    return ExperimentConfig(hardware, mesh, model, training, name, notes, extra, measured), check


def _given(data: Mapping[str, Any], part: str, key: str) -> bool:
    inside = data.get(part)
    return isinstance(inside, Mapping) and inside.get(key) is not None


def _free_text(value: Any) -> Any:
    """Notes are free: what is not text is kept as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _hardware(check: Checker, data: Mapping[str, Any]) -> tuple[Chip | None, Hardware | None]:
    if data.get("hardware") is None:
        check.fail("hardware", "is missing; give chip and topology, e.g. {chip: v5e, topology: [16, 16]}")
        return None, None
    before = len(check.errors)
    given = check.mapping("hardware", data["hardware"])
    if len(check.errors) > before:
        return None, None
    check.unknown_keys("hardware", given, HARDWARE_KEYS)
    chip = None
    if given.get("chip") is None:
        check.fail("hardware.chip", "is missing; known chips: " + " ".join(load_chips()))
    elif not isinstance(given["chip"], str):
        check.fail("hardware.chip", f"must be the name of a chip, not {shown(given['chip'])}")
    else:
        try:
            chip = get_chip(given["chip"])
        except KeyError:
            hint = suggestion(given["chip"], list(load_chips())) or "; known: " + " ".join(load_chips())
            check.fail("hardware.chip", f"{shown(given['chip'])} is not a known chip{hint}")
    topology = _topology(check, given.get("topology"), chip)
    slices = check.integer("hardware.slices", given.get("slices"), 1, high=MAX_CHIPS)
    if topology and prod(topology) * slices > MAX_CHIPS:
        check.fail("hardware.topology", f"times slices is more than the maximum of {MAX_CHIPS:,} chips")
    overrides: dict[str, float] = {}
    for key, value in check.mapping("hardware.overrides", given.get("overrides")).items():
        if key not in OVERRIDE_KEYS:
            check.warn(f"hardware.overrides.{key[:40]}", f"is not a known key, ignored{suggestion(key, OVERRIDE_KEYS)}")
        elif (number := check.positive(f"hardware.overrides.{key}", value, high=1e21)) is not None:
            overrides[key] = number
    if len(check.errors) > before or chip is None or topology is None:
        return chip, None
    return chip, Hardware(chip.name, topology, slices, MappingProxyType(overrides))


def _topology(check: Checker, value: Any, chip: Chip | None) -> tuple[int, ...] | None:
    if value is None:
        check.fail("hardware.topology", "is missing; give the chips per dimension, e.g. [16, 16]")
        return None
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}(x\d{1,9})*", value.strip().lower()):
        value = [int(part) for part in value.strip().lower().split("x")]
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, Sequence) or isinstance(value, str) or not 1 <= len(value) <= 3:
        check.fail("hardware.topology", f"must be a list of one to three numbers, not {shown(value)}")
        return None
    before = len(check.errors)
    sizes = tuple(check.required_integer("hardware.topology", size, 1, high=MAX_CHIPS) for size in value)
    if len(check.errors) > before:
        return None
    if chip is not None and chip.kind == "gpu" and len(sizes) > 2:
        check.fail("hardware.topology", "of GPUs is [GPUs per NVLink domain, domains]; give one or two numbers")
        return None
    if chip is not None and chip.kind == "tpu" and len(sizes) > chip.ici_axes:
        check.fail("hardware.topology", f"has {len(sizes)} dimensions; {chip.title} is a {chip.ici_axes}D torus")
        return None
    return sizes


def _mesh(check: Checker, data: Mapping[str, Any], hardware: Hardware | None) -> Mesh | None:
    if data.get("mesh") is None:
        check.fail("mesh", "is missing; give the mesh axes, e.g. {ici: {data: 16, model: 16}}")
        return None
    before = len(check.errors)
    given = check.mapping("mesh", data["mesh"])
    check.unknown_keys("mesh", given, MESH_KEYS)
    if len(check.errors) == before and not given.get("ici"):
        check.fail("mesh.ici", "is missing; give the size of each axis, e.g. {data: 16, model: 16}")
    ici = _axes(check, "mesh.ici", given.get("ici"))
    dcn = _axes(check, "mesh.dcn", given.get("dcn"))
    roles = _axis_roles(check, data, given, {axis for axis, _ in (*ici, *dcn)})
    for part, axes in (("ici", ici), ("dcn", dcn)):
        for axis, _ in axes:
            if axis not in ROLES and axis not in roles:
                hint = suggestion(axis, ROLES)
                check.fail(
                    f"mesh.{part}.{axis}",
                    f'is not a known role{hint or ""}; add "axis_roles": {{"{axis}": ROLE}} with ROLE one of '
                    + " ".join(ROLES),
                )
    if len(check.errors) > before:
        return None
    mesh = Mesh(ici, dcn, MappingProxyType(roles))
    if hardware is not None:
        _products(check, mesh, hardware)
    return mesh


def _axes(check: Checker, field: str, value: Any) -> tuple[tuple[str, int], ...]:
    axes = []
    for axis, size in check.mapping(field, value).items():
        if not _AXIS_NAME.fullmatch(axis):
            check.fail(field, f"has the axis {shown(axis)}; a name is a letter, then letters, digits, _ or -")
        else:
            axes.append((axis, check.required_integer(f"{field}.{axis}", size, 1, high=MAX_CHIPS)))
    if len(axes) > 16:
        check.fail(field, f"has {len(axes)} axes; at most 16")
        return ()
    return tuple(axes)


def _axis_roles(check: Checker, data: Mapping[str, Any], mesh: Mapping[str, Any], axes: set[str]) -> dict[str, str]:
    """`axis_roles` may stand in the mesh or beside it."""
    roles: dict[str, str] = {}
    for field, value in (("axis_roles", data.get("axis_roles")), ("mesh.axis_roles", mesh.get("axis_roles"))):
        for axis, role in check.mapping(field, value).items():
            if not isinstance(role, str) or role not in ROLES:
                check.fail(f"{field}.{axis[:40]}", f"is {shown(role)}; use one of {' '.join(ROLES)}")
            elif axis not in axes:
                check.warn(f"{field}.{axis[:40]}", "names an axis the mesh does not have; ignored")
            else:
                roles[axis] = role
    return roles


def _products(check: Checker, mesh: Mesh, hardware: Hardware) -> None:
    if mesh.ici_product != hardware.chips_per_slice:
        sizes = " x ".join(str(size) for _, size in mesh.ici)[:80]
        product = f"{sizes} = {mesh.ici_product}" if len(mesh.ici) > 1 else f"the product is {sizes}"
        check.fail(
            "mesh.ici",
            f"{product}, but the topology has {hardware.chips_per_slice} chips per slice; make the products equal",
        )
    if mesh.dcn_product != hardware.slices:
        check.fail(
            "mesh.dcn",
            f"the sizes multiply to {mesh.dcn_product}, but hardware.slices is {hardware.slices}; make them equal",
        )


def default_training(chip: Chip | None, mesh: Mesh | None) -> Training:
    """Training where nothing is said.

    TPU frameworks shard weights fully and recompute each layer; Megatron on GPUs shards the optimizer (ZeRO-1) and
    recomputes nothing, unless the mesh has an `fsdp` axis.
    """
    if chip is None or chip.kind == "tpu":
        return Training()
    fully = mesh is not None and mesh.size("fsdp") > 1
    return Training(weight_sharding="fsdp" if fully else "zero1", remat="none")


def _training(check: Checker, given: Mapping[str, Any], chip: Chip | None, mesh: Mesh | None) -> Training:
    check.unknown_keys("training", given, TRAINING_KEYS)
    default = default_training(chip, mesh)

    def number(key: str, fallback: int | None, high: int) -> int | None:
        if given.get(key) is None:
            return fallback
        return check.required_integer(f"training.{key}", given[key], 1, high=high)

    optimizer = (check.text("training.optimizer", given.get("optimizer"), limit=60) or default.optimizer).lower()
    if optimizer not in OPTIMIZERS:
        check.warn("training.optimizer", f"{shown(optimizer)} is unknown; its state is assumed to be two fp32 moments")

    def yes_or_no(key: str) -> bool | None:
        return None if given.get(key) is None else check.boolean(f"training.{key}", given[key], True)

    return Training(
        global_batch=number("global_batch", None, MAX_BATCH),
        seq_len=number("seq_len", None, MAX_TOKENS),
        precision=check.choice("training.precision", given.get("precision"), default.precision, PRECISION_NAMES),
        optimizer=optimizer,
        weight_sharding=check.choice(
            "training.weight_sharding", given.get("weight_sharding"), default.weight_sharding, SHARDING_NAMES
        ),
        remat=check.choice("training.remat", given.get("remat"), default.remat, REMAT_NAMES),
        grad_accum=number("grad_accum", 1, MAX_BATCH) or 1,
        micro_batch=number("micro_batch", None, MAX_BATCH),
        virtual_stages=number("virtual_stages", 1, 10_000) or 1,
        sequence_parallel=yes_or_no("sequence_parallel"),
        loss_parallel=yes_or_no("loss_parallel"),
        xla_flags=_flags(check, given.get("xla_flags")),
    )


def read_training(config: ExperimentConfig, given: Mapping[str, Any]) -> Training:
    """The configuration's training with these keys read as the file's are.  Raises ConfigError naming the key."""
    check = Checker()
    chip = load_chips().get(config.hardware.chip)
    read = _training(check, given, chip, config.mesh)
    if check.errors:
        raise check.errors[0]
    return replace(config.training, **{key: getattr(read, key) for key in given if key in TRAINING_KEYS})


def _flags(check: Checker, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        value = value.split()
    if not isinstance(value, Sequence) or any(not isinstance(flag, str) for flag in value):
        check.fail("training.xla_flags", f"must be a list of texts, not {shown(value)}")
        return ()
    if len(value) > 1000 or any(len(flag) > 1000 for flag in value):
        check.fail("training.xla_flags", "has too many flags or one that is too long; at most 1,000 of either")
        return ()
    return tuple(value)


def _software(check: Checker, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """`software_year` (2025.75 for 2025-10) and what was given, for a model that knows how releases differ."""
    check.unknown_keys("software", given, SOFTWARE_KEYS)
    extra: dict[str, Any] = {}
    for key in SOFTWARE_KEYS:
        if given.get(key) is not None and (text := check.text(f"software.{key}", given[key], limit=100)):
            extra[f"software_{key}"] = text
    if "software_date" in extra:
        match = re.fullmatch(r"(20\d\d)(?:-(0[1-9]|1[0-2])(?:-([0-2]\d|3[01]))?)?", extra["software_date"].strip())
        if match is None:
            check.fail("software.date", f"is {shown(given['date'])}; write 2025, 2025-10 or 2025-10-31")
        else:
            year, month = int(match[1]), int(match[2] or 7)
            extra["software_year"] = year + (month - 1) / 12
    return MappingProxyType(extra)


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
    software = {key: config.extra[f"software_{key}"] for key in SOFTWARE_KEYS if f"software_{key}" in config.extra}
    if software:
        result["software"] = software
    if measured := measured_to_json(config.measured):
        result["measured"] = dict(measured)
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
    check = Checker()
    _products(check, mesh, config.hardware)
    if check.errors:
        raise ConfigError("--mesh", str(check.errors[0]))
    same = (mesh.ici, mesh.dcn) == (config.mesh.ici, config.mesh.dcn)
    return replace(config, mesh=mesh, measured=config.measured if same else None)
