"""Starts the recording process and leaves a log directory with a configuration, ready to upload."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from experiments.record.spec import RecordSpec
from experiments.trial.process import (
    CONFIG_NAME,
    WORKER,
    RecordError,
    empty_folder,
    keep_profile,
    python,
    said,
)
from formatting import limit
from perfmodel.chips import load_chips

#: The contract knows accelerators only; a CPU recording is configured as this one, and its notes say so.
CPU_STAND_IN = "v5e"
#: Steps before the recording starts: the first compiles, the second runs with warm memory.
WARM_UP = 2


@dataclass(frozen=True)
class Recording:
    """profiles: `*.xplane.pb` files, one per host.  step_times_s: by the clock of the training loop."""

    folder: Path
    profiles: tuple[Path, ...]
    config: Path
    step_times_s: tuple[float, ...]
    losses: tuple[float, ...]


def record(spec: RecordSpec, folder: Path, *, timeout_s: float = 1800.0) -> Recording:
    """Records `spec` into `folder`.  Raises RecordError when the folder, the devices or the training fail."""
    spec.check()
    empty_folder(folder, "--out")
    seen = _run(spec, folder, timeout_s)
    if not any(folder.glob("plugins/profile/*/*.xplane.pb")):
        raise RecordError("The profiler wrote no file; check whether another program is profiling on this machine.")
    recorded = configuration(spec, *_hardware(spec, seen))
    recorded["name"] = f"small transformer on {spec.devices} {seen['device_kind']} devices, {_mesh_text(spec)}"
    profiles = tuple(keep_profile(folder, recorded))
    return Recording(folder, profiles, folder / CONFIG_NAME, tuple(seen["profiled_times_s"]), tuple(seen["losses"]))


def _run(spec: RecordSpec, folder: Path, timeout_s: float) -> dict[str, Any]:
    config = configuration(spec, CPU_STAND_IN, _stand_in_topology(spec), "")
    request = {"config": config, "warm_up": WARM_UP, "steps": 0, "profiled": spec.steps, "folder": str(folder)}
    too_long = f"The training step took longer than {limit(timeout_s, 's')}; choose a smaller model."
    done = python([*WORKER, json.dumps(request)], spec.platform, spec.devices, timeout_s, too_long)
    seen = said(done)
    if seen is None:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise RecordError(f"The training step failed on {spec.platform}: {last}")
    if "error" in seen:
        raise RecordError(f"{seen['error']} Choose a smaller --mesh or another --platform.")
    return seen


def _mesh_text(spec: RecordSpec) -> str:
    return " ".join(f"{axis} {size}" for axis, size in spec.mesh)


def configuration(spec: RecordSpec, chip: str, topology: list[int], notes: str) -> dict[str, Any]:
    """The contract's configuration of what is recorded."""
    return {
        "name": f"small transformer, {_mesh_text(spec)}",
        "hardware": {"chip": chip, "topology": topology, "slices": 1},
        "mesh": {"ici": dict(spec.mesh), "dcn": {}},
        "model": {
            "layers": spec.layers,
            "d_model": spec.d_model,
            "d_ff": spec.d_ff,
            "heads": spec.heads,
            "kv_heads": spec.kv_heads,
            "head_dim": spec.head_dim,
            "vocab": spec.vocab,
            "mlp": "gated",
            "tied_embeddings": True,
        },
        "training": {
            "global_batch": spec.batch,
            "seq_len": spec.seq_len,
            "precision": "bf16",
            "optimizer": "adamw",
            "weight_sharding": "fsdp",
            "remat": "full",
        },
        "notes": notes,
    }


def _hardware(spec: RecordSpec, seen: dict[str, Any]) -> tuple[str, list[int], str]:
    """Chip key, topology, and a note on how they were found."""
    recorded = f"Recorded by asap record on {spec.devices} {seen['device_kind']} devices."
    if seen["platform"] == "cpu":
        return (
            CPU_STAND_IN,
            _stand_in_topology(spec),
            f"{recorded} CPUs are not a supported chip: chip and topology are placeholders, so predicted times apply "
            "to that chip, not to this machine.",
        )
    kind = str(seen["device_kind"]).lower()
    matches = [key for key, chip in load_chips().items() if any(t.lower() == kind for t in chip.device_types)]
    if not matches:
        raise RecordError(
            f"The device kind {seen['device_kind']!r} is in no row of perfmodel/chips.toml; add it there."
        )
    coords = seen["coords"][: spec.devices]
    topology = [max(c[i] for c in coords) + 1 for i in range(len(coords[0]))] if coords else [spec.devices, 1]
    topology = [size for size in topology if size > 1] or [1]
    if prod(topology) != spec.devices:
        topology = [spec.devices]
    return matches[0], topology, recorded


def _stand_in_topology(spec: RecordSpec) -> list[int]:
    """As square as the devices allow."""
    short = 2 ** ((spec.devices.bit_length() - 1) // 2)
    while spec.devices % short:
        short -= 1
    return [short, spec.devices // short]
