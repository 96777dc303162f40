"""One launch file, its head, and how shell text is written so that nothing a user typed is run."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfmodel.config import ExperimentConfig

KINDS = ("maxtext", "maxtext-check", "jax", "axlearn", "megatron", "yaml")
_COMMENT_WIDTH = 110


@dataclass(frozen=True)
class LaunchFile:
    """A file to launch a proposal with.

    name: what it is saved as.  kind: one of KINDS.  text: empty where the tool cannot express the configuration; the
    notes then say why.  notes: what is left out, approximated or to be given, one sentence or two each.
    """

    name: str
    kind: str
    text: str
    notes: tuple[str, ...] = ()

    @property
    def produced(self) -> bool:
        return bool(self.text)


class NotExpressible(Exception):
    """A tool cannot run this configuration; the message is one sentence for the user."""


@dataclass(frozen=True)
class Header:
    """What the head of every file says: whose configuration it is, on which chips and mesh."""

    config: ExperimentConfig
    title: str = ""
    checked: str = ""

    def lines(self, tool: str, sources: str) -> list[str]:
        hardware = self.config.hardware
        shape = "x".join(str(size) for size in hardware.topology)
        slices = f" x {hardware.slices} slices" if hardware.slices > 1 else ""
        mesh = self.config.mesh.text().replace(" · ", ", ")
        lines = [one_line(f"{tool} for: {self.config.name or 'an experiment without a name'}")]
        if self.title:
            lines.append(one_line(f"Proposal: {self.title}"))
        return [
            *lines,
            f"Chips: {hardware.chip} {shape}{slices}. Mesh: {mesh}.",
            *([one_line(f"Compile check: {self.checked}")] if self.checked else []),
            f"Written by ASAP Web after {sources}.",
        ]


def one_line(text: str, limit: int = 300) -> str:
    """Printable characters on one line: no line break can end a comment early."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))[:limit]


def comment(lines: Iterable[str]) -> str:
    """Lines as a block of `#` comments, wrapped."""
    wrapped: list[str] = []
    for line in lines:
        wrapped += textwrap.wrap(one_line(line, 2000), _COMMENT_WIDTH, break_on_hyphens=False) or [""]
    return "\n".join(f"# {line}".rstrip() for line in wrapped)


def slug(text: str) -> str:
    """Lower-case letters, digits and hyphens, at most 60: a run's name that every tool takes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-") or "asap"


@dataclass(frozen=True)
class Required:
    """A value that the configuration does not give: the script stops and asks for this environment variable."""

    variable: str
    what: str

    def shell(self) -> str:
        return f'"${{{self.variable}:?{self.what}}}"'


Word = str | int | float | bool | Required


def word(value: Word) -> str:
    """A value as one word of a shell command."""
    if isinstance(value, Required):
        return value.shell()
    if isinstance(value, bool):
        return "true" if value else "false"
    return shlex.quote(str(value))


def array(name: str, lines: Sequence[str]) -> str:
    """A bash array with one entry, or one flag with its value, per line."""
    return "\n".join([f"{name}=(", *(f"  {line}" for line in lines), ")"])


def export_more(variable: str, flags: Sequence[str]) -> str:
    """Append flags to an environment variable of the shell, empty where there are none."""
    if not flags:
        return ""
    return f'export {variable}="${{{variable}:-}} "{shlex.quote(" ".join(flags))}\n'


#: Steps, after so many others, that a run records: enough for a diagnosis, few enough for a small profile.
PROFILE_AFTER, PROFILED = 10, 3
DEFAULT_STEPS = 30
#: What every script takes from the environment, as its head says.
RUN_NOTE = (
    "Environment: STEPS, OUTPUT (a folder), PROFILE (empty: no profile is recorded), PROFILE_AFTER; further arguments "
    "are passed on."
)


def run_environment() -> str:
    """Shell lines with the defaults of `RUN_NOTE`."""
    return (
        f'STEPS="${{STEPS:-{DEFAULT_STEPS}}}" OUTPUT="${{OUTPUT:-$PWD/output}}" PROFILE="${{PROFILE-1}}"\n'
        f'PROFILE_AFTER="${{PROFILE_AFTER:-{PROFILE_AFTER}}}"\n'
    )


def xla_flags(config: ExperimentConfig) -> tuple[str, ...]:
    """The configuration's XLA flags, each with its two dashes and without blanks."""
    words = [part for flag in config.training.xla_flags for part in one_line(flag, 1000).split()]
    return tuple(part if part.startswith("-") else f"--{part}" for part in words)
