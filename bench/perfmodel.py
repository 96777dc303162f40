"""How fast the performance model prices candidates, on one core.

`python -m bench.perfmodel` prints JSON: candidates per second of the full pod of the design's target, by the model
alone and under a measured step time; whether cost is linear in candidates; one prediction, and all meshes of a large
space under a measured step time, as the Explore page asks for them.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

# One core: NumPy's own threads would count for more.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from perfmodel.config import ExperimentConfig, Hardware, Measured, Mesh, ModelShape, Training
from perfmodel.prediction import predict
from perfmodel.price import NOTHING, Evidence, evidence_of
from perfmodel.search import price_space, search
from perfmodel.space import SearchBounds, build_space
from perfmodel.workload import REMAT

LLAMA3_70B = ModelShape(80, 8192, 28_672, 64, 8, 128, 128_256, name="llama3-70b")
AXES = ("pipeline", "replica", "data", "seq", "model")
#: What is published of a comparable search; the number of candidates and of cores is not stated there.
CALCULON = "Calculon's README: about one minute to search the executions of Turing-530B on 5,128 A100"


def pod(topology: tuple[int, ...] = (16, 20, 28), batches: int = 8) -> tuple[ExperimentConfig, SearchBounds]:
    """A v5p slice (default: the full pod of 8,960 chips), all factorisations over five axes, batches and remats."""
    chips = 1
    for size in topology:
        chips *= size
    config = ExperimentConfig(Hardware("v5p", topology), Mesh((("data", chips),)), LLAMA3_70B, Training(chips, 4096))
    sizes = [max(1, chips // 8) * 2**power for power in range(batches)]
    return config, SearchBounds(axes=AXES, changes=tuple({"global_batch": n, "remat": r} for n in sizes for r in REMAT))


def best_of(runs: int, work: Callable[[], object]) -> float:
    """Least seconds of several runs."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def price_all(config: ExperimentConfig, constraints: SearchBounds, evidence: Evidence = NOTHING) -> tuple[int, float]:
    """Candidates and seconds to build, price (legal or not) and rank all of them."""

    def work() -> int:
        space = build_space(config, constraints)
        return len(price_space(space, evidence).ranked) and space.count

    return work(), best_of(5, work)


def step_time_of(config: ExperimentConfig) -> Evidence:
    """Evidence of a run of the configuration that took 1.2 times what the model alone says."""
    step = predict(config).step_time_s
    assert step is not None
    return evidence_of(replace(config, measured=Measured(1.2 * step["estimate"])))


def main() -> dict[str, Any]:
    """Run all benchmarks and print them as JSON."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    config, constraints = pod()
    candidates, seconds = price_all(config, constraints)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    linear = dict(price_all(*pod(batches=batches)) for batches in (2, 4, 8, 16))
    _, measured_s = price_all(config, constraints, step_time_of(config))
    page, _ = pod((12, 16, 16))
    meshes, page_s = price_all(page, SearchBounds(axes=(*AXES[:-1], "expert", "model")), step_time_of(page))
    result = {
        "full_pod": {
            "what": "8,960 v5p chips, all factorisations over five axes x 8 batches x 4 remats, priced and ranked",
            "candidates": candidates,
            "seconds": round(seconds, 4),
            "candidates_per_s": round(candidates / seconds),
            "peak_memory_bytes": after * 1024,
            "memory_grown_bytes": (after - before) * 1024,
        },
        "candidates_per_s_under_a_step_time": round(candidates / measured_s),
        "all_meshes_of_explore_under_a_step_time": {"meshes": meshes, "seconds": round(page_s, 4)},
        "seconds_by_candidates": {str(count): round(taken, 4) for count, taken in linear.items()},
        "search_of_the_pod_with_ten_full_predictions_s": round(best_of(3, lambda: search(config, 10, constraints)), 4),
        "one_prediction_s": round(best_of(20, lambda: predict(config)), 6),
        "published_elsewhere": CALCULON,
    }
    print(json.dumps(result, indent=2))
    return result


if __name__ == "__main__":
    main()
