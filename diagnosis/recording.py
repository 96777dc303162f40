"""Recording: what an upload is, as decided once before anything is concluded from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from experiments.sentences import Text
from experiments.step_profile import UNDECIDED

#: Kinds of recording, and of the program that ran, with the words that pages have for them.
KINDS = {
    "training": "Training",
    "prefill": "Prefill (inference)",
    "decode": "Decode (inference)",
    "inference": "Inference",
    "benchmark": "Benchmark",
    "graph_capture": "Graph capture",
    "separate_runs": "Several separate runs",
    "data_loading": "Data loading only",
    "copies": "Copies only",
    "few_launches": "A few launches",
    UNDECIDED: "Unknown kind",
}
PROGRAMS = {
    "transformer": "a transformer",
    "convolutional": "a convolutional network",
    "recommender": "a recommender",
    UNDECIDED: "an unknown program",
}
INFERENCE = ("prefill", "decode", "inference")
#: Share of device time of unknown kind from which a missing collective is none that was measured.
MUCH_UNKNOWN = 0.1


@dataclass(frozen=True)
class Missing:
    """One thing that was not recorded, and how to record it."""

    what: str
    action: str


@dataclass(frozen=True)
class Recording:
    """Hold what was recorded.

    kind, program: keys of KINDS and PROGRAMS; kind_evidence, program_evidence: what in the profile says so.  stated:
    which of the two the engineer stated.  steps_from: what marks the steps, empty where nothing does; executions that
    stand for steps are `estimated`.  devices: recorded of run_devices (None where the profile does not say), on hosts.
    has: what is there by name.  unknown_share: 0–1 of the time of ops whose kind is unknown.  clipped: what the edges
    of the recording cut off, as sentences.  rows: requests that one iteration of a serving engine decodes.
    configured: the run's configuration is known.  platform: `tpu`, `gpu` or `cpu`, empty where nothing tells.
    device: as the profile names it.  provenance: of `step_profile.PROVENANCES`.
    refusal: why the performance model does not describe this program; empty where it may.  line: all of it in short.
    """

    kind: str = UNDECIDED
    kind_evidence: Text = ""
    program: str = UNDECIDED
    program_evidence: Text = ""
    stated: tuple[str, ...] = ()
    steps: int = 0
    steps_from: str = ""
    estimated: bool = False
    devices: int = 0
    run_devices: int | None = None
    hosts: int = 0
    has: dict[str, bool] = field(default_factory=dict)
    missing: tuple[Missing, ...] = ()
    unknown_share: float = 0.0
    clipped: tuple[str, ...] = ()
    rows: int | None = None
    configured: bool = False
    platform: str = ""
    device: str = ""
    provenance: str = "measured"
    refusal: Text = ""
    line: Text = ""

    @property
    def is_program(self) -> bool:
        """Return whether it shows one run of a program, so that its time has a bottleneck."""
        return self.kind not in ("graph_capture", "separate_runs", "data_loading", "copies", "few_launches")

    @property
    def may_train(self) -> bool:
        """Return whether nothing says that it is no training step."""
        return self.kind in ("training", UNDECIDED)

    @property
    def hides_communication(self) -> bool:
        """Whether ops of unknown kind may be collectives: what is known of communication is then a lower bound."""
        return (self.run_devices or self.devices) > 1 and self.unknown_share >= MUCH_UNKNOWN

    def meets(self, needs: tuple[str, ...]) -> bool:
        """Return whether a rule with these needs applies: `training`, not excluded by its kind; `program`, one run of a
        program on devices; `marked steps`; `configuration`; a key of PROGRAMS or of `has`."""
        met = {
            "training": self.may_train,
            "program": self.is_program,
            "marked steps": bool(self.steps_from) and not self.estimated,
            "configuration": self.configured,
            self.program: True,
        } | self.has
        return all(met.get(need, False) for need in needs)
