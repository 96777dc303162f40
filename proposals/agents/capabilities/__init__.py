"""Everything that can be computed for a run, entered into one registry; see `capability.Capability`."""

# isort: off
from proposals.agents.capabilities import (  # their order is that of the vectors in reasoner/examples.npz
    findings,
    run,
    ops,
    communication,
    cost,
    held,
    judging,
    known,
    memory,
    other_chips,
    parallelism,
    plans,
    pricing,
    searching,
)  # fmt: skip

# isort: on
from proposals.agents.capabilities.answer_context import AnswerContext
from proposals.agents.capabilities.capability import Capability, Missing, answer, arguments, command, registry
from proposals.agents.capabilities.held import AREAS

__all__ = [
    "AREAS",
    "AnswerContext",
    "Capability",
    "Missing",
    "answer",
    "arguments",
    "command",
    "communication",
    "cost",
    "findings",
    "held",
    "judging",
    "known",
    "memory",
    "ops",
    "other_chips",
    "parallelism",
    "plans",
    "pricing",
    "registry",
    "run",
    "searching",
]  # fmt: skip
