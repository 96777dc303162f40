"""Facts: the profile read under its configuration, once, for every part of the Analyzer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from diagnosis.analyzer.collectives import Collective
from diagnosis.recording import Recording
from experiments.step_profile import XLA_PROFILES, Op, StepProfile
from perfmodel.chips import Chip
from perfmodel.config import ExperimentConfig

#: Family of an op that moves a tensor between HBM and host memory (offload).
HOST_TRANSFER = "host transfer"
#: Roofline resources as XProf names them; VMEM and CMEM are on the chip and not HBM.
ON_CHIP = ("vmem", "cmem", "smem", "shm", "l1", "l2", "shared")


@dataclass(frozen=True)
class OpFacts:
    """One op as the Analyzer sees it.

    time_s: self time per step and core, None without a step time.  share: of the step (of all op time where no step is
    known).  limit: compute, hbm, on-chip, latency (a launch too small to fill the device), or empty, with limit_source
    `roofline`, `launch` (its size), `tile` (of the kernel), `iteration` (of a serving engine) or `category`.
    efficiency: 0–1 of the roof that limits it, None where not measured.
    """

    op: Op
    category: str
    family: str
    module: str
    phase: str
    path: str
    share: float
    time_s: float | None
    limit: str
    limit_source: str
    efficiency: float | None
    collective: Collective | None

    @property
    def resource(self) -> str:
        """The bar of the breakdown that its time is drawn in: compute, hbm, ici, dcn, host, idle or other."""
        if self.collective:
            return "dcn" if self.over_dcn else "ici"
        if self.family in ("input", "output", "host", HOST_TRANSFER):
            return "host"
        if self.family == "idle":
            return "idle"
        return self.limit if self.limit in ("compute", "hbm") else "other"

    @property
    def key(self) -> str:
        return self.op.key

    @property
    def exposed_share(self) -> float:
        """Share of the step in which this collective ran and nothing hid it; its own share where no interval says."""
        exposed, own = self.op.exposed_s, self.op.self_time_s
        return self.share if exposed is None or own <= 0 else self.share * min(1.0, exposed / own)

    @property
    def hidden_share(self) -> float | None:
        """Part 0–1 of its time in flight that other ops hid; None without intervals, or where its bytes contradict
        them.
        """
        flight, exposed = self.op.in_flight_s, self.op.exposed_s
        if flight is None or exposed is None or flight <= 0 or (self.collective and self.collective.above_links):
            return None
        return max(0.0, 1.0 - exposed / flight)

    def per_step(self, total: float | None) -> float | None:
        """A total over the op's occurrences as per step and core; None where either is unknown."""
        if total is None or self.time_s is None or self.op.self_time_s <= 0:
            return None
        return total * self.time_s / self.op.self_time_s

    @property
    def axes(self) -> tuple[str, ...]:
        return self.collective.match.ici if self.collective and self.collective.match else ()

    @property
    def over_dcn(self) -> bool:
        return bool(self.collective and self.collective.match and self.collective.match.dcn)


@dataclass(frozen=True)
class Facts:
    """Everything the rules may ask.  coverage: share of all op time that the listed ops make up (0–1).

    breakdown_s and shares sum to the step (to 1).  base: what a share is a share of, in words.
    """

    profile: StepProfile
    config: ExperimentConfig | None
    chip: Chip | None
    ops: tuple[OpFacts, ...]
    coverage: float
    kpis: dict[str, float | None]
    not_measured: dict[str, str]
    shares: dict[str, float] = field(default_factory=dict)
    mfu_convention: str = ""
    recording: Recording = field(default_factory=Recording)

    @property
    def step_time_s(self) -> float | None:
        return self.profile.step_time_s

    @property
    def base(self) -> str:
        of_time = "of the recorded time" if self.recording.platform == "cpu" else "of device time"
        return "of the step" if self.step_time_s else of_time

    @property
    def of_xla(self) -> bool:
        """The program was compiled by XLA: advice may name JAX and its flags."""
        return self.profile.source_kind in XLA_PROFILES

    @property
    def thin(self) -> bool:
        """Too few ops to stand for the whole step."""
        return not self.recording.meets(("most ops",))

    @property
    def has_flops(self) -> bool:
        return self.recording.meets(("flops",))

    @property
    def has_roofline(self) -> bool:
        return self.recording.meets(("roofline",))

    @property
    def on_gpu(self) -> bool:
        return self.recording.platform == "gpu"

    @property
    def configured(self) -> ExperimentConfig:
        """The configuration, for rules that need one."""
        assert self.config is not None
        return self.config

    @property
    def once(self) -> float:
        """Share of the recording in which modules are loaded, or idle in gaps of which nothing shows that they come
        back: no step is known to wait for them."""
        return self.profile.recorded.gaps.get("rare", 0.0)

    @property
    def bubble(self) -> float | None:
        """Share of the step that stages wait by the pipeline's schedule (book 5.5); None without stages."""
        stages = self.axis_size("pipeline")
        if self.config is None or stages < 2:
            return None
        training = self.config.training
        return (stages - 1) / (max(1, training.virtual_stages) * max(1, training.grad_accum) + stages - 1)

    @cached_property
    def collectives(self) -> tuple[OpFacts, ...]:
        return tuple(op for op in self.ops if op.collective)

    def where(self, test: Callable[[OpFacts], bool]) -> tuple[OpFacts, ...]:
        """The ops that took time and pass, by descending share."""
        return tuple(op for op in self.ops if op.share > 0 and test(op))

    def seconds(self, share: float) -> float | None:
        return share * self.step_time_s if self.step_time_s else None

    def role_of(self, axis: str) -> str:
        return self.config.mesh.role(axis) if self.config else axis

    def roles(self, op: OpFacts) -> set[str]:
        """Roles of the axes a collective runs on, DCN axes included."""
        roles = {self.role_of(axis) for axis in op.axes}
        if op.over_dcn and self.config:
            roles |= {self.config.mesh.role(axis) for axis, size in self.config.mesh.dcn if size > 1}
        return roles

    def axis_of(self, role: str) -> str | None:
        """The first axis with this role that is larger than one; None where there is none."""
        axes = (*self.config.mesh.ici, *self.config.mesh.dcn) if self.config else ()
        return next((axis for axis, size in axes if size > 1 and self.role_of(axis) == role), None)

    def axis_size(self, *roles: str) -> int:
        return self.config.mesh.size(*roles) if self.config else 1


def total_share(ops: Iterable[OpFacts]) -> float:
    return sum(op.share for op in ops)


def total_exposed(ops: Iterable[OpFacts]) -> float:
    """Share of the step in which these collectives or transfers ran and nothing else did."""
    return sum(op.exposed_share for op in ops)


def hidden_part(ops: Iterable[OpFacts]) -> float | None:
    """Part 0–1 of their time in flight, from start to done, that other ops hid; None where no interval tells."""
    timed = [op for op in ops if op.hidden_share is not None]
    flight = sum(op.op.in_flight_s or 0.0 for op in timed)
    return max(0.0, 1.0 - sum(op.op.exposed_s or 0.0 for op in timed) / flight) if flight > 0 else None


def keys(ops: Iterable[OpFacts], most: int = 50) -> tuple[str, ...]:
    """Keys of the largest ops, for the evidence."""
    return tuple(op.key for op in sorted(ops, key=lambda op: -op.share)[:most])
