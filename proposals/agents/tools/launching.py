"""The tool that writes launch files as text.  Nothing is launched, and no file is stored."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from proposals import launch
from proposals.agents.tool_result import ToolResult
from proposals.agents.tools.common import ProposalOrConfiguration, Tools, as_tool_error, proposal
from proposals.compiling.wording import sentence
from proposals.plan import Broken

#: Characters of a file in a list; asked for one kind it comes whole.
HEAD = 700


class Launched(ProposalOrConfiguration):
    kind: Literal["", "maxtext", "maxtext-check", "jax", "axlearn", "megatron", "yaml"] = Field(
        "", description="Only this file, whole; empty: the beginning of each."
    )


class LaunchFile(ToolResult):
    """A file as text.  characters: of the whole file; notes: what it cannot express."""

    name: str = ""
    kind: str = ""
    text: str = ""
    characters: int = 0
    notes: tuple[str, ...] = ()


class LaunchFiles(ToolResult):
    """Files that would launch a configuration."""

    mesh: dict[str, dict[str, int]] = {}
    changes: dict[str, Any] = {}
    may_run: bool = True
    violations: tuple[Broken, ...] = ()
    files: tuple[LaunchFile, ...] = ()


class LaunchTools(Tools):
    def launch_files(self, asked: Launched) -> LaunchFiles:
        """Flags and files that would launch a proposal or a configuration: MaxText, plain JAX, AXLearn, Megatron-LM,
        YAML, and what each tool cannot express. Text to read and copy; nothing is launched."""
        bench = self._bench
        title = checked = ""
        with as_tool_error():
            if asked.number is not None:
                standing = proposal(bench, asked.number)
                of = standing.proposal
                title = f"{of.rank}. {of.title}, {standing.status}"
                checked = sentence(standing.compiled) if standing.compiled else ""
            else:
                assert asked.configuration is not None
                of = bench.pricer.evaluate(asked.configuration, bench.constraints)
            files = launch.files(bench.config, of, title, checked)
        files_shown = (
            LaunchFile(
                name=item.name,
                kind=item.kind,
                text=item.text if asked.kind else item.text[:HEAD],
                characters=len(item.text),
                notes=tuple(item.notes),
            )
            for item in files
            if not asked.kind or item.kind == asked.kind
        )
        return LaunchFiles(
            mesh=of.mesh,
            changes=of.changes,
            may_run=not of.violations,
            violations=of.violations,
            files=tuple(files_shown),
        )
