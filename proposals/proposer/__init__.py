"""The Proposer: three ranked configurations from a profile, its configuration and its diagnosis.  Pure, no Django."""

from proposals.proposer.pricer import Pricer, propose

__all__ = ["Pricer", "propose"]
