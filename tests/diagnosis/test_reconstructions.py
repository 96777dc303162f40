"""The printed ops inside a whole step, filled up in ways the paper leaves open: the answer is that of the breakdown."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from diagnosis.analyzer import diagnose
from evaluation.steps import paper
from evaluation.steps.variants import perturbed
from experiments.step_profile import Op, StepProfile

pytestmark = pytest.mark.slow


def filler(name: str, category: str, share: float, bound: str, efficiency: float | None) -> Op:
    compute = efficiency if bound == "Compute" else 0.02
    return Op(
        name=name,
        category=category,
        occurrences=100,
        self_time_s=share * 100,
        total_time_s=share * 100,
        time_share=share,
        bound_by=bound,
        roofline_efficiency=efficiency,
        compute_efficiency=compute if efficiency is not None else None,
        flops=1e9 if efficiency is not None else None,
    )


def filled(
    number: int, scale: float, parts: dict[str, tuple[str, float, str, float | None]], limit: float
) -> StepProfile:
    """The printed ops, their shares times `scale`, and ops shorter than `limit` of the step for each part of the rest.

    parts: name → (category, share of the rest, bound by, roofline efficiency).
    """
    whole = paper.profile(number)
    ops = [replace(op, time_share=op.time_share * scale, self_time_s=op.time_share * scale * 100) for op in whole.ops]
    rest = paper.DUTY[number] - sum(op.time_share for op in ops)
    for name, (category, share, bound, efficiency) in parts.items():
        total = rest * share
        count = int(total / limit) + 1
        ops += [filler(f"{name}.{i}", category, total / count, bound, efficiency) for i in range(count)]
    random.Random(number).shuffle(ops)
    return replace(whole, ops=tuple(sorted(ops, key=lambda op: -op.self_time_s)), ops_dropped=0, source_kind="xplane")


#: What a filling makes of the step where that is not the paper's verdict: 5 % of collectives do not bound a step,
#: however they lead the list; of time without a label nobody knows what it is.
OTHERWISE = {
    "3, as printed": "compute",
    "3, as fractions": "compute",
    "3, as fractions, opaque rest": "unknown",
}
PRODUCTS = ("convolution fusion", 0.6, "Compute", 0.6)
CASES = {
    "1, products and streams": filled(1, 1.0, {"fusion": ("convolution fusion", 0.8, "Compute", 0.7),
                                               "loop": ("loop fusion", 0.2, "HBM", 0.8)}, 0.004),
    "1, slow products": filled(1, 1.0, {"fusion": ("convolution fusion", 0.7, "Compute", 0.35),
                                        "loop": ("loop fusion", 0.3, "HBM", 0.7)}, 0.004),
    "1, much of it opaque": filled(1, 1.0, {"fusion": ("convolution fusion", 0.4, "Compute", 0.7),
                                            "call": ("custom-call", 0.5, "Unknown", None),
                                            "loop": ("loop fusion", 0.1, "HBM", 0.8)}, 0.004),
    "2, streams": filled(2, 1.0, {"loop": ("loop fusion", 1.0, "HBM", 0.75)}, 0.01),
    "2, weights streamed by products": filled(2, 1.0, {"fusion": ("convolution fusion", 0.7, "HBM", 0.6),
                                                       "attention": ("custom-call", 0.3, "Compute", 0.4)}, 0.01),
    "3, three steps of one core": filled(3, 1000 * 0.19 / 0.17, {"fusion": ("convolution fusion", 0.7, "Compute", 0.55),
                                                               "loop": ("loop fusion", 0.3, "HBM", 0.8)}, 0.03),
    "3, as printed": filled(3, 1.0, {"fusion": ("convolution fusion", 0.7, "Compute", 0.4),
                                     "loop": ("loop fusion", 0.3, "HBM", 0.7)}, 0.00006),
    "3, as fractions": filled(3, 100.0, {"fusion": ("convolution fusion", 0.8, "Compute", 0.4),
                                         "loop": ("loop fusion", 0.2, "HBM", 0.7)}, 0.006),
    "3, as fractions, opaque rest": filled(3, 100.0, {"call": ("custom-call", 1.0, "Unknown", None)}, 0.006),
    "3, many small collectives": filled(3, 100.0, {"all-reduce": ("all-reduce", 0.4, "HBM", 0.001),
                                                   "fusion": PRODUCTS}, 0.006),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_any_filling(name: str) -> None:
    number = int(name[0])
    for seed in range(3):
        profile = perturbed(CASES[name], seed) if seed else CASES[name]
        found = diagnose(profile, paper.config(number)).bottleneck.primary
        assert found == OTHERWISE.get(name, paper.BOTTLENECK[number])


def test_half_compute_and_half_hbm_is_a_tie_and_said_so() -> None:
    halves = {"fusion": ("convolution fusion", 0.5, "HBM", 0.7), "mxu": ("convolution fusion", 0.5, "Compute", 0.4)}
    bottleneck = diagnose(filled(2, 1.0, halves, 0.01), paper.config(2)).bottleneck
    assert {bottleneck.primary, bottleneck.secondary} == {"compute", "memory"} and bottleneck.confidence < 0.7
