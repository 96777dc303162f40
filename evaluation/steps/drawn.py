"""Training steps drawn at random: chips, meshes, shapes, efficiencies and stalls, many near a verdict's edge."""

from __future__ import annotations

import random
from math import prod

from evaluation.steps.generated import made
from evaluation.steps.scenario import LARGE, MIDDLE, MIXTURE, SMALL, Ledger, Scenario
from evaluation.steps.variants import perturbed
from experiments.step_profile import StepProfile

_PLACES = (
    ("v4", (4, 4, 4)), ("v5e", (16, 16)), ("v5e", (8, 8)), ("v5p", (8, 8, 8)), ("v5p", (4, 4, 8)), ("v6e", (16, 16)),
    ("v6e", (4, 4)), ("h100", (8, 8)), ("b200", (8, 4)), ("a100-80gb", (8, 16)),
)  # fmt: skip
_WIDTHS = {"model": (2, 4, 8, 16), "seq": (2, 4, 8), "expert": (4, 8, 16), "pipeline": (2, 4)}


def scenario(seed: int) -> Scenario:
    """One step; the same for the same seed.  Its label is what its ledger says, so none is stated here."""
    rng = random.Random(seed)
    chip, topology = rng.choice(_PLACES)
    chips = prod(topology)
    model = rng.choice((SMALL, MIDDLE, LARGE, MIXTURE))
    axes = {"expert": 0.9 if model.experts else 0.0, "model": 0.5, "seq": 0.25, "pipeline": 0.12}
    sizes = {axis: rng.choice(_WIDTHS[axis]) for axis, chance in axes.items() if rng.random() < chance}
    while prod(sizes.values()) > chips // 2:
        sizes.popitem()
    mesh = [("data", chips // prod(sizes.values())), *sizes.items()]
    if rng.random() < 0.3:
        rng.shuffle(mesh)
    data = chips // prod(sizes.values())
    stages = sizes.get("pipeline", 1)
    accum = stages * rng.choice((1, 2, 4)) if stages > 1 else 1
    bubble = (stages - 1) / (accum + stages - 1)

    def sometimes(chance: float, low: float, high: float) -> float:
        return rng.uniform(low, high) if rng.random() < chance else 0.0

    return Scenario(
        f"drawn {seed}",
        "",
        (),
        chip,
        topology,
        tuple(mesh),
        model,
        batch=data * accum * rng.choice((1, 2, 4, 8)),
        seq_len=rng.choice((512, 1024, 2048, 4096, 8192, 16384)),
        dcn=(("replica", rng.choice((2, 4))),) if chip.startswith("v") and rng.random() < 0.12 else (),
        weight_sharding=rng.choice(("fsdp", "fsdp", "none")),
        remat=rng.choice(("none", "full")),
        grad_accum=accum,
        products=rng.uniform(0.25, 0.85),
        streams=rng.uniform(0.6, 0.95),
        links=rng.uniform(0.35, 0.95),
        hidden=rng.choice((0.0, rng.random(), rng.random(), 0.95)),
        passes=4.0 * 60.0 ** rng.random(),
        attention=rng.uniform(0.25, 0.7),
        idle=bubble if stages > 1 else sometimes(0.12, 0.02, 0.35),
        input=sometimes(0.15, 0.02, 0.35),
        host=sometimes(0.1, 0.02, 0.3),
        straggler=sometimes(0.12, 0.02, 0.3),
        shuffle=sometimes(0.2, 0.02, 0.5),
        reshard=sometimes(0.1, 0.02, 0.4),
        imbalance=sometimes(0.4, 0.05, 1.0) if model.experts else 0.0,
        memory=rng.uniform(0.3, 0.99),
        listed=rng.choice((5, 10, 20)) if rng.random() < 0.15 else 0,
        measured_flops=rng.random() > 0.1,
    )


def step(seed: int) -> tuple[Scenario, StepProfile, Ledger]:
    """A drawn step as measured on another day: durations ±10 %, one op in twenty missing, the ledger as before."""
    drawn = scenario(seed)
    profile, ledger = made(drawn, seed)
    return drawn, perturbed(profile, seed), ledger
