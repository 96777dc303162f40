"""What a compilation says of a configuration."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.codec import Codec

#: fits; out_of_memory: the compiler needs more than the chip has; invalid: the step cannot be built or sharded so;
#: crashed: the compiler died at every effort; timed_out; not_installed: no compiler for this chip here; refused: it has
#: XLA flags that do not reach the server's compiler.
OUTCOMES = ("fits", "out_of_memory", "invalid", "crashed", "timed_out", "not_installed", "refused")


@dataclass(frozen=True)
class CollectiveUse:
    """One collective of the program.  kind as in HLO; axes: mesh axes, `dcn` first where it crosses slices.

    payload_bytes: of one occurrence, the whole array of a gather or reduction, else what a chip hands on.  times: per
    step.  sent_bytes: that a chip sends per step, by ring algorithms.  source: framework path, `op_name` of the HLO.
    """

    kind: str
    axes: tuple[str, ...]
    participants: int
    payload_bytes: float
    times: int
    sent_bytes: float
    source: str


@dataclass(frozen=True)
class CompileCheck:
    """outcome: one of OUTCOMES; message: one sentence, where it is not `fits`.

    peak_bytes: most memory that a chip holds, arguments included; argument_bytes: of it parameters, optimizer state and
    batch; needed_bytes: what an out-of-memory program asked for; capacity_bytes: what the compiler can use of the chip.
    effort: `quick` or `default`, at which the answer was found; quick overstates the peak (docs/compile-check.md).
    compile_s: wall time.  versions: of jax and of the compiler.  notes: where the step differs from the configuration.
    """

    outcome: str
    message: str = ""
    peak_bytes: float | None = None
    argument_bytes: float | None = None
    needed_bytes: float | None = None
    capacity_bytes: float | None = None
    collectives: tuple[CollectiveUse, ...] = ()
    effort: str = "quick"
    compile_s: float | None = None
    versions: dict[str, str] | None = None
    notes: tuple[str, ...] = ()

    @property
    def memory_bytes(self) -> float | None:
        """What the compiler says the step takes on a chip, whether it fits or not."""
        return self.peak_bytes if self.peak_bytes is not None else self.needed_bytes


CHECK = Codec(CompileCheck)
