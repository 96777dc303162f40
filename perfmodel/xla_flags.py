"""XLA flags by chip and by the exposed transfer they overlap, each set with where it is documented (xla_flags.toml)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from perfmodel.data_file import EXACT, DataError, read_rows

_FILE = Path(__file__).with_name("xla_flags.toml")
CAUSES = (
    "ici_all_gather",
    "ici_reduce_scatter",
    "ici_all_reduce",
    "dcn_all_reduce",
    "dcn_all_gather",
    "all_to_all",
    "collective_permute",
    "collective_matmul",
    "host_offload",
    "small_collectives",
)
_ON_ICI = {
    "all-gather": "ici_all_gather",
    "reduce-scatter": "ici_reduce_scatter",
    "all-reduce": "ici_all_reduce",
    "all-to-all": "all_to_all",
    "collective-permute": "collective_permute",
}
_ON_DCN = {"all-gather": "dcn_all_gather", "all-reduce": "dcn_all_reduce", "reduce-scatter": "dcn_all_reduce"}


_FUSION = "--xla_tpu_enable_async_collective_fusion"


class FlagRow(BaseModel):
    """A set as the file has it."""

    model_config = EXACT
    cause: str
    chips: tuple[str, ...] = Field(min_length=1)
    flags: tuple[Annotated[str, Field(pattern="^--[^=]+=")], ...] = Field(min_length=1)
    note: str = Field(min_length=1)
    sources: tuple[str, ...] = Field(min_length=1)


@dataclass(frozen=True)
class FlagSet:
    """Flags that belong together.  sources: (title, address) of every document they stand in."""

    cause: str
    chips: tuple[str, ...]
    flags: tuple[str, ...]
    note: str
    sources: tuple[tuple[str, str], ...]

    @property
    def citation(self) -> str:
        return "; ".join(title for title, _ in self.sources)


def cause_of(kind: str, over_dcn: bool) -> str | None:
    """The cause under which flags for an exposed collective of this kind stand; None where there is none."""
    return (_ON_DCN if over_dcn else _ON_ICI).get(kind)


def flag_set(chip: str, cause: str) -> FlagSet | None:
    """The documented set for this chip and cause; None where nothing is documented."""
    return next((found for found in _sets() if found.cause == cause and chip in found.chips), None)


def missing(found: FlagSet, given: Iterable[str]) -> tuple[str, ...]:
    """Flags of the set that a run does not set, whatever value it gives them: a choice of the user's stands."""
    names = {flag.partition("=")[0] for flag in given}
    return tuple(flag for flag in found.flags if flag.partition("=")[0] not in names)


def shown_by(collectives: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Names of flags whose passes made these ops (name, kind): they are on, by default where nobody set them.

    ``async-collective-start`` is what fusing an asynchronous collective with the ops beside it leaves, ``-start`` and
    ``-done`` what making it asynchronous does.  One of unknown kind (`collective`) is taken for an all-gather: by
    OpenXLA's guide no other is fused by default (documented for v5e).
    """
    found = set()
    for name, kind in collectives:
        words = "all_gather" if kind == "collective" else kind.replace("-", "_")
        fused = name.lstrip("%").replace("_", "-").startswith("async-collective")
        if fused:
            found |= {_FUSION, f"{_FUSION}_fuse_{words}"}
        if fused or "-start" in name or "-done" in name:
            found.add(f"--xla_enable_async_{words}")
    return frozenset(found)


@cache
def _sets() -> tuple[FlagSet, ...]:
    return read(tomllib.loads(_FILE.read_text()))


def read(data: Mapping[str, Any]) -> tuple[FlagSet, ...]:
    """The sets of a parsed file.  Raises DataError on a set that is incomplete or cites no known source."""
    sources = {name: (str(title), str(url)) for name, (title, url) in data["sources"].items()}
    found = []
    for row in read_rows(FlagRow, {str(number): row for number, row in enumerate(data["set"], start=1)}).values():
        if row.cause not in CAUSES:
            raise DataError(f"{row.cause!r} is no known cause; known: {', '.join(CAUSES)}")
        if not set(row.sources) <= set(sources):
            raise DataError(f"{row.cause}: a set of flags without a known source does not load")
        found.append(FlagSet(row.cause, row.chips, row.flags, row.note, tuple(sources[name] for name in row.sources)))
    return tuple(found)
