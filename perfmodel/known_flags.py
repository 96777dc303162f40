"""Look up what is documented of flags, variables and arguments of compilers, NCCL and frameworks (flags.toml)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from perfmodel.reading import read_rows, shipped

_FUSION = "--xla_tpu_enable_async_collective_fusion"


class Documented(BaseModel):
    """A row of a file.  sources: (title, address) of every document that has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    sources: tuple[tuple[str, str], ...] = Field(min_length=1)

    @property
    def citation(self) -> str:
        return "; ".join(title for title, _ in self.sources)


class DefaultFlags(Documented):
    """What acts on some chips where nobody sets it."""

    chips: tuple[str, ...] = Field(min_length=1)
    flags: tuple[Annotated[str, Field(pattern="^--[^=]+=")], ...] = Field(min_length=1)


class Flag(Documented):
    """A row of flags.toml; see there."""

    name: str
    takes: Literal["xla-tpu", "xla-gpu", "xla", "jax", "nccl", "cuda", "pytorch", "megatron", "maxtext"]
    does: str = Field(min_length=1)
    on: tuple[str, ...]
    memory: str = ""
    holds: tuple[str, ...] = ()
    needs_axis: tuple[str, ...] = ()
    called: tuple[str, ...] = ()


Row = TypeVar("Row", bound=Documented)


def read(kind: type[Row], rows: Iterable[Mapping[str, Any]], sources: Mapping[str, Any]) -> tuple[Row, ...]:
    """Return rows of a parsed file.  Raises DataError on one that is incomplete or cites none of its `sources`."""
    cited = ({**row, "sources": [sources.get(key) for key in row["sources"]]} for row in rows)
    return tuple(read_rows(kind, {str(number): row for number, row in enumerate(cited, start=1)}).values())


#: A flag in a text: its name after dashes, or one of XLA's without; then perhaps a value, quoted or not.  A comma ends
#: a value only where another flag may follow: some take lists.
_FLAG = re.compile(
    r"""(?<![\w-])(?:--(?P<dashed>[A-Za-z]\w*)|-?(?P<bare>xla_\w+))"""
    r"""(?:\s*=\s*(?P<value>"[^"]*"|'[^']*'|(?:[^\s,;"']|,(?![\s-]|xla_|$))*)|\s+(?P<apart>(?i:true|false)|\d+)\b)?"""
)
_ON, _OFF = frozenset(("", "true", "1", "yes", "on", "enabled")), frozenset(("false", "0", "no", "off", "disabled"))
#: The value that leaves a flag to the compiler, as if nobody set it.
_AUTO = "auto"
#: The value of a flag that nobody sets.
UNSET = ""
#: Flags of older builds by what newer ones call the same: beyond a threshold (MiB) no collective matmul is built.
_THRESHOLD, _NEVER_MIB = "xla_jf_spmd_threshold_for_windowed_einsum_mib", 1000.0
_MATMULS = ("xla_tpu_all_gather_collective_matmul_mode", "xla_tpu_reduce_scatter_collective_matmul_mode")


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


def settings(written: object, chip: str) -> dict[str, str]:
    """Return the value of every flag that acts on a chip, by name, older names as newer ones."""
    chosen = {name: value for name, value in flag_values(written).items() if value != _AUTO}
    values = {**defaults(chip), **chosen}
    threshold = values.pop(_THRESHOLD, None)
    if threshold is not None:
        mib = number(threshold)
        values |= dict.fromkeys(_MATMULS, "none" if mib is not None and mib >= _NEVER_MIB else "always")
    return {name: value for name, value in values.items() if value != UNSET}


def number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Return the flags that are set otherwise, as they then are; UNSET where they are dropped."""
    return {name: new.get(name, UNSET) for name in {**old, **new} if old.get(name) != new.get(name)}


def changed(before: object, after: object, chip: str) -> frozenset[tuple[str, str]]:
    """Return the flags that act otherwise on a chip after a change, each with the value that it then has."""
    return frozenset(differences(settings(before, chip), settings(after, chip)).items())


@cache
def defaults(chip: str) -> Mapping[str, str]:
    """The documented value of flags where nobody sets them, by name."""
    data = shipped("flags.toml")
    rows = read(DefaultFlags, data["default"], data["sources"])
    return flag_values(tuple(flag for row in rows if chip in row.chips for flag in row.flags))


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


#: Words of a text that have the form of a flag, a variable or an argument with underscores or hyphens.
_WORD = re.compile(r"(?<![\w./-])-{0,2}([A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)+)(\*)?(?:=[\w.\-]+)?")
#: How a name begins that is nothing else than a flag.
_FORM = re.compile(
    r"^(?:xla_\w+_|nccl_|rccl_|cuda_|hip_|hsa_|nvte_|torch_|tf_|jax_|miopen_|pytorch_|tpu_)", re.IGNORECASE
)
#: What flags are put into, and beginnings of their names: neither is a flag.
_NO_FLAGS = frozenset(("xla_flags", "libtpu_init_args", "xla_gpu", "xla_tpu", "nccl_debug"))
#: Parts by which a name that is cut short is still that of a flag.
LEAST_PARTS = 3


@cache
def load() -> dict[str, Flag]:
    """All flags by name in lower case.  Raises DataError."""
    data = shipped("flags.toml")
    flags = read(Flag, ({"name": name, **row} for name, row in data["flag"].items()), data["sources"])
    return {_plain(flag.name): flag for flag in flags}


def _plain(name: str) -> str:
    return name.lower().lstrip("-").replace("-", "_")


def named(text: str) -> Iterator[tuple[str, tuple[Flag, ...]]]:
    """Flags that a text names, as written, with what is known of each: several for `…_fusion*`, none where it has the
    form of a flag and is not known."""
    known, seen = load(), set[str]()
    lower = text.lower()
    for flag in known.values():
        if any(re.search(rf"\b{re.escape(name)}\b", lower) for name in flag.called):
            seen.add(_plain(flag.name))
            yield flag.name, (flag,)
    for match in _WORD.finditer(text):
        word = _plain(match[1])
        if word in seen or word in _NO_FLAGS:
            continue
        matches = tuple(flag for name, flag in known.items() if name not in seen and _means(word, name, bool(match[2])))
        if matches or _FORM.match(match[1]) or match[0].startswith("--"):
            seen |= {word, *(_plain(flag.name) for flag in matches)}
            yield match[0].partition("=")[0], matches


def _means(word: str, name: str, open_ended: bool) -> bool:
    """Whether a word is a flag's name: whole, its beginning before a `*`, or its end where it was cut short."""
    if open_ended:
        return name.startswith(word)
    return word == name or (word.count("_") >= LEAST_PARTS - 1 and name.endswith(f"_{word}"))
