"""XLA flags by chip and by the exposed transfer they overlap, each set with where it is documented (xla_flags.toml)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
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


class DefaultRow(BaseModel):
    """What acts on some chips where nobody sets it."""

    model_config = EXACT
    chips: tuple[str, ...] = Field(min_length=1)
    flags: tuple[Annotated[str, Field(pattern="^--[^=]+=")], ...] = Field(min_length=1)
    sources: tuple[str, ...] = Field(min_length=1)


@dataclass(frozen=True)
class FlagSet:
    """Flags that belong together.  sources: (title, address) of every document that has them."""

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
    """The documented set for this chip and cause, without what is its default there; None where nothing is left."""
    documented_set = next((one for one in _sets() if one.cause == cause and chip in one.chips), None)
    if documented_set is None:
        return None
    flags = tuple(flag for flag in documented_set.flags if not flag_values(flag).items() <= defaults(chip).items())
    return replace(documented_set, flags=flags) if flags else None


def missing(documented_set: FlagSet, set_now: Iterable[str]) -> tuple[str, ...]:
    """Flags of the set that a run does not set, whatever value it gives them: the user's choice is kept."""
    names = flag_values(tuple(set_now))
    return tuple(flag for flag in documented_set.flags if not flag_values(flag).keys() & names)


#: A flag in a text: its name after dashes, or one of XLA's without; then perhaps a value, quoted or not.  A comma ends
#: a value only where another flag may follow: some take lists.
_FLAG = re.compile(
    r"""(?<![\w-])(?:--(?P<dashed>[A-Za-z]\w*)|-?(?P<bare>xla_\w+))"""
    r"""(?:\s*=\s*(?P<value>"[^"]*"|'[^']*'|(?:[^\s,;"']|,(?![\s-]|xla_|$))*)|\s+(?P<apart>(?i:true|false)|\d+)\b)?"""
)
_ON, _OFF = frozenset(("", "true", "1", "yes", "on", "enabled")), frozenset(("false", "0", "no", "off", "disabled"))
#: The value that leaves a flag to the compiler, as if nobody set it.
_AUTO = "auto"


def flag_values(written: object) -> dict[str, str]:
    """The value of every flag by its name, however they are written: one text or several, with or without quotes and
    dashes, or an object of names and values.  `true`, `1` and no value are one, `false` and `0` too; the last of two
    settings counts, as in XLA.  What is no flag is left out.
    """
    if isinstance(written, str):
        return {
            (match["dashed"] or match["bare"]): _value(match["value"] or match["apart"] or "")
            for match in _FLAG.finditer(written)
        }
    if isinstance(written, Mapping):
        pairs = (
            f"--{str(name).strip().lstrip('-')}={_value('' if value is None else str(value))}"
            for name, value in written.items()
        )
        return flag_values(tuple(pairs))
    if isinstance(written, list | tuple | set | frozenset):
        flag_settings = [flag_values(item) for item in written if isinstance(item, str | Mapping)]
        return {name: value for one in flag_settings for name, value in one.items()}
    return {}


def _value(text: str) -> str:
    plain = text.strip().strip("\"'").strip().lower()
    plain = plain[1:] if plain in ("kenabled", "kdisabled", "kauto") else plain
    return "true" if plain in _ON else "false" if plain in _OFF else plain


def changed(before: object, after: object, chip: str) -> frozenset[str]:
    """Flags that act otherwise on a chip after a change than before it, as they then are: `--name` where it is on, else
    `--name=value`; `--name=auto` where nobody sets it any more and no default is documented."""
    old, new = (
        {**defaults(chip), **{name: value for name, value in flag_values(side).items() if value != _AUTO}}
        for side in (before, after)
    )
    names = {name for name in {**old, **new} if old.get(name) != new.get(name)}
    return frozenset(
        f"--{name}" if (value := new.get(name, _AUTO)) == "true" else f"--{name}={value}" for name in names
    )


@cache
def defaults(chip: str) -> Mapping[str, str]:
    """The documented value of flags where nobody sets them, by name."""
    return flag_values(tuple(flag for row in _default_rows() if chip in row.chips for flag in row.flags))


def documented() -> frozenset[str]:
    """Return the names of all flags that a set or a default has, without dashes."""
    written = [*(row.flags for row in _sets()), *(row.flags for row in _default_rows())]
    return frozenset(name for flags in written for name in flag_values(flags))


def shown_by(collectives: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Names of flags whose passes made these ops (name, kind): they are on, by default where nobody set them.

    ``async-collective-start`` is what fusing an asynchronous collective with the ops beside it leaves, ``-start`` and
    ``-done`` what making it asynchronous does.  One of unknown kind (`collective`) is taken for an all-gather: by
    OpenXLA's guide no other is fused by default (documented for v5e).
    """
    enabled_flags = set()
    for name, kind in collectives:
        words = "all_gather" if kind == "collective" else kind.replace("-", "_")
        fused = name.lstrip("%").replace("_", "-").startswith("async-collective")
        if fused:
            enabled_flags |= {_FUSION, f"{_FUSION}_fuse_{words}"}
        if fused or "-start" in name or "-done" in name:
            enabled_flags.add(f"--xla_enable_async_{words}")
    return frozenset(enabled_flags)


@cache
def _sets() -> tuple[FlagSet, ...]:
    return read(tomllib.loads(_FILE.read_text()))


@cache
def _default_rows() -> tuple[DefaultRow, ...]:
    data = tomllib.loads(_FILE.read_text())
    rows = tuple(
        read_rows(DefaultRow, {str(number): row for number, row in enumerate(data["default"], start=1)}).values()
    )
    if not {name for row in rows for name in row.sources} <= set(data["sources"]):
        raise DataError("a default without a known source does not load")
    return rows


def read(data: Mapping[str, Any]) -> tuple[FlagSet, ...]:
    """The sets of a parsed file.  Raises DataError on a set that is incomplete or cites no known source."""
    sources = {name: (str(title), str(url)) for name, (title, url) in data["sources"].items()}
    flag_sets = []
    for row in read_rows(FlagRow, {str(number): row for number, row in enumerate(data["set"], start=1)}).values():
        if row.cause not in CAUSES:
            raise DataError(f"unknown cause {row.cause!r}; known: {', '.join(CAUSES)}")
        if not set(row.sources) <= set(sources):
            raise DataError(f"{row.cause}: a set of flags without a known source does not load")
        flag_sets.append(
            FlagSet(row.cause, row.chips, row.flags, row.note, tuple(sources[name] for name in row.sources))
        )
    return tuple(flag_sets)
