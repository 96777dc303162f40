"""Configurations the tests of the performance model share."""

from perfmodel.config import ExperimentConfig, Hardware, Mesh, ModelShape, Training

LLAMA3_8B = ModelShape(32, 4096, 14_336, 32, 8, 128, 128_256, name="llama3-8b")
LLAMA3_70B = ModelShape(80, 8192, 28_672, 64, 8, 128, 128_256, name="llama3-70b")
MIXTRAL = ModelShape(
    32, 4096, 14_336, 32, 8, 128, 32_000, name="mixtral", experts=8, experts_per_token=2, d_ff_expert=14_336
)


def tpu(
    mesh=None, *, chip="v5p", topology=(8, 8, 8), shape=LLAMA3_8B, batch=512, seq=4096, slices=1, dcn=(), **training
):
    """A TPU run; `mesh` as a dictionary, major to minor."""
    mesh = mesh or {"data": 8, "seq": 8, "model": 8}
    overrides = training.pop("overrides", {})
    return ExperimentConfig(
        Hardware(chip, topology, slices, overrides),
        Mesh(tuple(mesh.items()), tuple(dcn)),
        shape,
        Training(batch, seq, **training),
    )


def a100(tensor, stages, batch=512, micro=1, shape=LLAMA3_8B):
    """Megatron on one node of eight A100 80 GB in fp16, as in OptiCo's Figure 5."""
    mesh = {"pipeline": stages, "data": 8 // tensor // stages, "model": tensor}
    return ExperimentConfig(
        Hardware("a100-80gb", (8, 1)),
        Mesh(tuple(mesh.items())),
        shape,
        Training(batch, 8192, "fp16", "adamw", "zero1", "none", micro_batch=micro),
    )
