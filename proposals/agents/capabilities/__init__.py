"""Everything that can be computed for a run, entered into one registry; see `capability.Capability`."""

from proposals.agents.capabilities import (  # their order is that of the palette
    communication,
    cost,
    findings,
    held,
    judging,
    known,
    memory,
    ops,
    other_chips,
    parallelism,
    plans,
    pricing,
    run,
    searching,
)  # isort: skip  # fmt: skip
from proposals.agents.capabilities.capability import Capability, Missing, answer, arguments, command, registry
from proposals.agents.capabilities.desk import Desk
from proposals.agents.capabilities.held import AREAS

__all__ = [
    "AREAS", "Capability", "Desk", "Missing", "answer", "arguments", "command", "communication", "cost", "findings",
    "held", "judging", "known", "memory", "ops", "other_chips", "parallelism", "plans", "pricing", "registry", "run",
    "searching",
]  # fmt: skip
