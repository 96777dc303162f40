"""`asap record`: a small sharded transformer as a configuration, recorded on the devices at hand."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

from experiments.consistency.topology import near_cube
from experiments.trial.process import RecordError
from experiments.trial.runner import Trial, at_hand, run
from perfmodel import legality
from perfmodel.chips import load_chips
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import parse_config, parse_mesh_argument

#: A configuration names an accelerator; a CPU recording is configured as this one, and its notes say so.
CPU_STAND_IN = "v5e"
#: Keys of `model` and `training` that may be chosen.
MODEL = {"layers": 4, "d_model": 256, "d_ff": 1024, "heads": 8, "kv_heads": 4, "head_dim": 32, "vocab": 2048}
TRAINING = {"global_batch": 8, "seq_len": 256}
MAX_STEPS = 100  # more make a profile too large to convert


def record(mesh: str, folder: Path, *, steps: int = 3, platform: str = "cpu", **sizes: int) -> Trial:
    """Record steps of a small transformer on a mesh (`data=4,model=2`) into a new folder, ready to upload.

    sizes: of MODEL and TRAINING.  Raises ConfigError or RecordError where it cannot be run or recorded here.
    """
    config = _config(mesh, platform, sizes)
    done = run(config, steps=0, platform=platform, folder=folder, profiled=steps, timeout_s=1800.0)
    if done.failure is not None:
        raise RecordError(f"The training step failed on {platform}: {done.failure}")
    if not any(folder.glob("plugins/profile/*/*.xplane.pb")):
        raise RecordError("The profiler wrote no file; check whether another program is profiling on this machine.")
    return done


def _config(mesh: str, platform: str, sizes: dict[str, int]) -> ExperimentConfig:
    axes = parse_mesh_argument(mesh)
    chips, text = axes.ici_product, mesh.replace(",", " ").replace("=", " ")
    seen = at_hand(platform)
    chip, topology, notes = _hardware(seen, chips)
    config, _ = parse_config(
        {
            "name": f"small transformer on {chips} {seen['kind']} devices, {text}",
            "hardware": {"chip": chip, "topology": topology, "slices": axes.dcn_product},
            "mesh": axes.to_json(),
            "model": {key: sizes.get(key, size) for key, size in MODEL.items()}
            | {"mlp": "gated", "tied_embeddings": True},
            "training": {key: sizes.get(key, size) for key, size in TRAINING.items()}
            | {"precision": "bf16", "optimizer": "adamw", "weight_sharding": "fsdp", "remat": "full"},
            "notes": f"Recorded by asap record on {chips} {seen['kind']} devices.{notes}",
        }
    )
    for rule, broken in legality.indivisible(config).items():
        if broken:
            raise RecordError(str(legality.sentence(rule, config)))
    return config


def _hardware(seen: dict[str, Any], chips: int) -> tuple[str, list[int], str]:
    """Return chip, topology, and what the notes say of them."""
    if seen["kind"] == "cpu":
        note = " CPUs are not a supported chip: chip and topology are placeholders, so predicted times apply to that "
        return CPU_STAND_IN, near_cube(chips, 2), f"{note}chip, not to this machine."
    kind = str(seen["kind"]).lower()
    chip = next((key for key, chip in load_chips().items() if kind in map(str.lower, chip.device_types)), None)
    if chip is None:
        raise RecordError(f"The device kind {seen['kind']!r} is in no row of perfmodel/chips.toml; add it there.")
    coords = seen["coords"][:chips]
    topology = [max(axis) + 1 for axis in zip(*coords, strict=True) if max(axis)]
    return chip, topology if prod(topology) == chips else [chips], ""
