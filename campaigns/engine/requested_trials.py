"""A configuration that somebody asks for, as a candidate of the campaign's space, or why it is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from campaigns.engine.candidates import TrialCandidates
from campaigns.engine.space import key_of, settings_of
from perfmodel.config import ConfigError, ExperimentConfig, Mesh
from perfmodel.config_file import read_mesh
from proposals.candidate import Candidate, MeshAndChanges, candidate
from proposals.constraints import Constraints
from proposals.proposer.changes import Change, given_changes, products, split_once
from proposals.proposer.limits import broken_by, rules_of
from proposals.proposer.space import side_by_side


class Refused(Exception):
    """It cannot be tried in this campaign.  The text is a sentence that names the rule."""


@dataclass(frozen=True)
class CandidateLookup:
    """The candidates of a campaign by configuration.

    config: what the campaign began with.  by_key: place of each trial's key.  constraints: None for a recorded
    landscape, which holds what was recorded and nothing else.
    """

    config: ExperimentConfig
    candidates: TrialCandidates
    by_key: Mapping[str, int]
    constraints: Constraints | None = None

    def find(self, of: MeshAndChanges) -> int:
        """Return the row of a mesh with training keys, however they are written.  Raises Refused."""
        try:
            own, change = read_mesh(self.config, of.mesh), given_changes(self.config, of.changes)
            change = split_once(self.config, own, change)
        except ConfigError as error:
            raise Refused(f"It is not a valid configuration: {error}") from None
        if wrong := products(self.config, own):
            raise Refused(wrong[0].reason)
        if fixed := sorted(set(change) - set(settings_of(self.config))):
            raise Refused(f"A campaign does not change {', '.join(fixed)}.")
        asked = replace(candidate(self.config, Candidate(own.to_json(), change)), measured=None)
        row = self.by_key.get(key_of(asked))
        if row is None:
            raise Refused(self._why_not(own, change))
        return row

    def _why_not(self, mesh: Mesh, change: Change) -> str:
        """The first rule of the space that it breaks; else that the space is narrower."""
        if self.constraints is None:
            return "The recorded landscape contains no run of it."
        meant = side_by_side(self.config, self.config, [(mesh, change)])
        rules = rules_of(meant, replace(self.constraints, keep_batch=True))
        broken = next(broken_by(meant, 1, rules), None)
        if broken is not None:
            return broken.reason
        return (
            f"It is not among the {len(self.candidates):,} candidates of this campaign: it is equivalent to another "
            "one, changes more settings at once than are searched, or is predicted slower than all of them."
        )
