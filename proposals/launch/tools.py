"""All tools at once: what one proposal needs to be launched with any of them."""

from __future__ import annotations

from perfmodel.config import ExperimentConfig
from proposals.candidate import MeshAndChanges, candidate
from proposals.launch import axlearn, maxtext, megatron, own_yaml, plain_jax
from proposals.launch.file import Header, LaunchFile


def files(config: ExperimentConfig, of: MeshAndChanges, title: str = "", checked: str = "") -> tuple[LaunchFile, ...]:
    """Launch files of one proposal, for every tool; what a tool cannot express has no text and says why.

    config: of the experiment.  title: one line about the proposal, checked: one about its compile check, for the
    heads of the files.  Raises ConfigError where mesh and chips do not match.
    """
    proposed = candidate(config, of)
    header = Header(proposed, title, checked)
    return (
        maxtext.file(proposed, header),
        plain_jax.file(proposed, header),
        axlearn.file(proposed, header),
        megatron.file(proposed, header),
        own_yaml.file(proposed, header),
    )
