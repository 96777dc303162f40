"""A labelled training step: what it is, what is expected of its diagnosis, and the ledger of what it was made of."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from perfmodel.config import ExperimentConfig, Hardware, Mesh, ModelShape, Training

SMALL = ModelShape(24, 2048, 8192, 16, 16, 128, 50304, name="1.5B")
MIDDLE = ModelShape(32, 4096, 14336, 32, 8, 128, 128256, name="8B")
LARGE = ModelShape(80, 8192, 28672, 64, 8, 128, 128256, name="70B")
NARROW = ModelShape(32, 4096, 5120, 32, 16, 128, 50304, name="narrow MLP")
MIXTURE = ModelShape(
    27, 2048, 10944, 16, 16, 128, 102400, name="64 small experts", experts=64, experts_per_token=6, d_ff_expert=1408
)
#: Shapes that scenarios name.
SHAPES = {"SMALL": SMALL, "MIDDLE": MIDDLE, "LARGE": LARGE, "NARROW": NARROW, "MIXTURE": MIXTURE}


@dataclass(frozen=True)
class Ledger:
    """What a step was made of, as shares of it.

    causes: by what costs the time (a cause may be part of another).  resources: exclusive, by compute, memory,
    communication, input, host and idle; what a straggler or a full expert makes others wait counts as communication,
    since that is where they wait.
    """

    causes: dict[str, float]
    resources: dict[str, float]

    @property
    def truth(self) -> str:
        """The contract's verdict: where 30 % of the step or more is lost to input, host, idle time and communication,
        the largest of them; otherwise the larger of compute and memory.
        """
        lost = {name: self.resources[name] for name in ("input", "host", "idle", "communication")}
        groups = lost if sum(lost.values()) >= 0.30 else {name: self.resources[name] for name in ("compute", "memory")}
        return max(groups, key=lambda name: groups[name])


@dataclass(frozen=True)
class Scenario:
    """One labelled case.  products, streams, links, attention: efficiency of matmuls, HBM, links, kernels.

    hidden: part of each collective's time that compute covers.  passes: elementwise passes over the activations per
    layer, in tensors of d_model per token.  imbalance: time of the fullest core's experts over the mean, less one.
    stage_wait: share of the step that stages of a pipeline wait inside their permutes.
    listed: how many of the largest ops the profile holds (0: all).  measured_flops: whether ops carry FLOPs and bytes.
    precision: of the matmuls; attention kernels run in bf16.
    """

    name: str
    label: str
    expected: tuple[str, ...]
    chip: str
    topology: tuple[int, ...]
    ici: tuple[tuple[str, int], ...]
    model: ModelShape
    batch: int
    seq_len: int
    dcn: tuple[tuple[str, int], ...] = ()
    weight_sharding: str = "fsdp"
    remat: str = "none"
    grad_accum: int = 1
    products: float = 0.75
    streams: float = 0.85
    links: float = 0.8
    hidden: float = 0.9
    passes: float = 12.0
    attention: float = 0.45
    idle: float = 0.0
    input: float = 0.0
    host: float = 0.0
    straggler: float = 0.0
    shuffle: float = 0.0
    reshard: float = 0.0
    memory: float = 0.6
    also: tuple[str, ...] = ()
    not_expected: tuple[str, ...] = ()
    imbalance: float = 0.0
    stage_wait: float = 0.0
    listed: int = 0
    measured_flops: bool = True
    precision: str = "bf16"


def config(s: Scenario) -> ExperimentConfig:
    return ExperimentConfig(
        Hardware(s.chip, s.topology, prod(size for _, size in s.dcn)),
        Mesh(s.ici, s.dcn),
        s.model,
        Training(
            global_batch=s.batch,
            seq_len=s.seq_len,
            weight_sharding=s.weight_sharding,
            remat=s.remat,
            grad_accum=s.grad_accum,
            precision=s.precision,
        ),
    )
