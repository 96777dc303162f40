"""Steps that are slow by something known, because it was put into them.

`expected` are the rules that name it; `also` names costs that the same cause brings with it.
"""

from __future__ import annotations

from tests.diagnosis.generated import LARGE, MIDDLE, MIXTURE, NARROW, SMALL, Scenario

POD = (16, 16)
DATA_256 = (("data", 256), ("model", 1))

SCENARIOS = (
    # Bound by compute: enough tokens per chip, communication hidden.
    Scenario("70B on 512 v5p, tuned", "compute", ("little_to_gain",), "v5p", (8, 8, 8), (("data", 64), ("model", 8)), LARGE,
             512, 8192, attention=0.6, passes=6.0, not_expected=("replicated_weights", "fsdp_gathers_exposed", "hbm_bound_elementwise")),
    Scenario("8B on a v5e pod, tuned", "compute", ("little_to_gain",), "v5e", POD, DATA_256, MIDDLE, 512, 8192, attention=0.65,
             not_expected=("tensor_parallel_communication", "fsdp_gathers_exposed")),
    Scenario("products at a quarter of the peak", "compute", ("low_matrix_efficiency",), "v5p", (8, 8, 8),
             (("data", 64), ("model", 8)), LARGE, 512, 8192, products=0.25, not_expected=("little_to_gain",)),
    Scenario("an MLP split into shards of 320", "compute", ("unaligned_shapes",), "v5p", (4, 4, 8), (("data", 8), ("model", 16)),
             NARROW, 512, 4096, hidden=0.98, passes=1.0, also=("low_matrix_efficiency",)),
    Scenario("128k tokens of context", "compute", ("attention_dominates",), "v5p", (4, 4, 8),
             (("data", 8), ("seq", 16)), MIDDLE, 32, 131072, also=("low_matrix_efficiency",)),
    Scenario("everything recomputed, memory half empty", "compute", ("recompute",), "v5p", (8, 8, 8), (("data", 64), ("model", 8)),
             LARGE, 512, 8192, remat="full", memory=0.4),
    Scenario("memory full", "compute", ("memory_near_capacity",), "v5e", POD, DATA_256, MIDDLE, 512, 8192, memory=0.97,
             not_expected=("recompute",), also=("low_matrix_efficiency",)),
    Scenario("tensor axis well hidden", "compute", (), "v6e", POD, (("data", 64), ("model", 4)), LARGE, 512, 8192, hidden=0.99,
             also=("hbm_bound_elementwise",),             not_expected=("tensor_parallel_communication", "gradient_reduction")),
    Scenario("one slow core", "compute", ("stragglers",), "v5p", (8, 8, 8), (("data", 64), ("model", 8)), LARGE, 512, 8192,
             straggler=0.12, also=("exposed_communication", "fsdp_gathers_exposed", "tensor_parallel_communication")),
    # Bound by HBM bandwidth.
    Scenario("unfused elementwise work", "memory", ("hbm_bound_elementwise",), "v6e", POD, (("data", 256),), MIDDLE, 1024, 4096,
             passes=220.0, not_expected=("little_to_gain",)),
    Scenario("unfused elementwise work on v5p", "memory", ("hbm_bound_elementwise",), "v5p", (4, 4, 4), (("data", 64),), SMALL,
             512, 4096, passes=600.0),
    Scenario("layouts changed all the time", "memory", ("data_shuffle",), "v5p", (4, 4, 8), (("data", 128),), MIDDLE, 512, 4096,
             shuffle=0.6),
    Scenario("replicated weights, few tokens", "memory", ("replicated_weights", "optimizer_update"), "v6e", (4, 4),
             (("data", 16), ("model", 1)), SMALL, 16, 64, weight_sharding="none", hidden=0.99),
    Scenario("optimizer of a replicated model", "memory", ("optimizer_update", "replicated_weights"), "v5p", (4, 4, 4),
             (("data", 64), ("model", 1)), MIDDLE, 64, 256, weight_sharding="none", hidden=0.99),
    # Bound by communication.
    Scenario("16-way tensor parallelism of a small model", "communication", ("tensor_parallel_communication",), "v5e", POD,
             (("data", 16), ("model", 16)), SMALL, 512, 4096, hidden=0.0, also=("hbm_bound_elementwise",)),
    Scenario("8-way tensor parallelism in the open", "communication", ("tensor_parallel_communication",), "v6e", POD,
             (("data", 32), ("model", 8)), MIDDLE, 512, 4096, hidden=0.1, also=("hbm_bound_elementwise",)),
    Scenario("gathers of sharded weights, few tokens", "communication", ("fsdp_gathers_exposed",), "v5e", POD, DATA_256, MIDDLE,
             256, 512, hidden=0.1, also=("hbm_bound_elementwise", "replicated_weights")),
    Scenario("gathers on v6e", "communication", ("fsdp_gathers_exposed",), "v6e", POD, (("data", 256),), LARGE, 256, 1024,
             hidden=0.2, also=("replicated_weights",)),
    Scenario("gradients of replicated weights", "communication", ("gradient_reduction", "replicated_weights"), "v5e", POD,
             (("data", 256),), SMALL, 512, 512, weight_sharding="none", hidden=0.0, also=("optimizer_update",)),
    Scenario("gradients over the network between slices", "communication", ("exposed_dcn",), "v5e", POD, DATA_256, LARGE, 1024,
             512, dcn=(("replica", 4),), hidden=0.0, also=("fsdp_gathers_exposed", "replicated_weights")),
    Scenario("expert dispatch", "communication", ("expert_all_to_all",), "v5e", POD, (("data", 32), ("expert", 8)), MIXTURE, 1024,
             2048, hidden=0.0, also=("fsdp_gathers_exposed",), not_expected=("resharding",)),
    Scenario("keys and values gathered in the open", "communication", ("sequence_parallel_exposed",), "v5e", POD,
             (("data", 16), ("seq", 16)), SMALL, 512, 4096, hidden=0.0, also=("fsdp_gathers_exposed", "replicated_weights")),
    Scenario("tensor axis laid major", "communication", ("axis_on_slow_links", "tensor_parallel_communication"), "v5e", POD,
             (("model", 8), ("data", 32)), MIDDLE, 512, 4096, hidden=0.0, also=("fsdp_gathers_exposed",)),
    Scenario("tensor axis across NVLink domains", "communication", ("axis_on_slow_links", "tensor_parallel_communication"), "h100",
             (8, 8), (("model", 8), ("data", 8)), LARGE, 128, 4096, hidden=0.0),
    Scenario("a tensor that changes axes", "communication", ("resharding",), "v5p", (4, 4, 8), (("data", 32), ("model", 4)), LARGE,
             256, 4096, reshard=0.5, hidden=0.95),
    # Waiting.
    Scenario("slow input", "input", ("input_pipeline",), "v5e", POD, DATA_256, MIDDLE, 512, 8192, input=0.35),
    Scenario("input a little slow", "input", ("input_pipeline",), "v5p", (4, 4, 8), (("data", 128),), MIDDLE, 512, 4096,
             input=0.16),
    Scenario("slow dispatch", "host", ("host_gaps",), "v5e", POD, DATA_256, MIDDLE, 512, 8192, host=0.3),
    Scenario("gaps", "idle", ("idle_gaps",), "v5e", POD, DATA_256, MIDDLE, 512, 8192, idle=0.35),
    Scenario("pipeline of four, four micro-batches", "idle", ("pipeline_bubble",), "v5p", (4, 4, 8),
             (("pipeline", 4), ("data", 32)), LARGE, 256, 4096, grad_accum=4, idle=3 / 7, not_expected=("idle_gaps",),
             also=("fsdp_gathers_exposed",)),
)  # fmt: skip
