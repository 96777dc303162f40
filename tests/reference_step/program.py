"""Trains the reference step on forced CPU devices: `python -m tests.reference_step.program CASES`, JSON in and out."""

from __future__ import annotations

import json
import sys
from typing import Any

import jax

from perfmodel import accounting
from perfmodel.config_file import parse_config
from reference_step.layout import device_mesh
from reference_step.step import UnsupportedStep, build


def axes(entry: Any) -> list[str]:
    return [entry] if isinstance(entry, str) else list(entry or ())


def report(case: dict[str, Any]) -> dict[str, Any]:
    config, _ = parse_config(case["config"])
    try:
        reference = build(config, device_mesh(config, jax.devices()), **case.get("options", {}))
    except UnsupportedStep as reason:
        return {"unsupported": str(reason)}
    assert config.model is not None
    found: dict[str, Any] = {
        "parameters": reference.parameters,
        "counted": accounting.parameters(config.model).total,
        "specs": {
            part: {name: [axes(d) for d in a.sharding.spec] for name, a in arrays.items()}
            for part, arrays in reference.abstract_state.items()
            if part != "count"
        },
        "notes": reference.notes,
    }
    if not case["steps"]:  # where arrays would lie is said without compiling anything
        return found
    state, batch = reference.init(jax.random.key(0)), reference.batch(jax.random.key(1))
    losses = []
    for _ in range(case["steps"]):
        state, loss = reference.step(state, batch)
        losses.append(float(loss))
    held = {name: list(w.addressable_shards[0].data.shape) for name, w in state["params"].items()}
    return found | {"losses": losses, "held": held}


if __name__ == "__main__":
    json.dump({name: report(case) for name, case in json.load(sys.stdin).items()}, sys.stdout)
