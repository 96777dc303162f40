"""Everything that can be computed for a run, entered into one registry; see `capability.Capability`."""

from proposals.agents.capabilities import communication, cost, held, known, memory, ops, plans, pricing, run
from proposals.agents.capabilities.capability import Capability, Missing, answer, arguments, command, registry
from proposals.agents.capabilities.desk import Desk
from proposals.agents.capabilities.held import AREAS

__all__ = [
    "AREAS", "Capability", "Desk", "Missing", "answer", "arguments", "command", "communication", "cost", "held", "known",
    "memory", "ops", "plans", "pricing", "registry", "run",
]  # fmt: skip
