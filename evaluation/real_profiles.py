"""Profiles that others recorded: what XProf (or the trace itself) says, and what the product says, per quantity.

`python -m evaluation.real_profiles` reads every profile of real_profiles.toml that is on this machine and writes the
table in docs/accuracy-profiles.md.  An oracle gives the quantities of one kind of profile without the product's own
readers; a new kind is one more entry of ORACLES.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluation.report import wrapped
from evaluation.trace_oracle import of_nsight, of_traces
from evaluation.xprof_oracle import of_exports, of_xplanes
from experiments.ingest import read_profile
from experiments.step_profile import StepProfile

LIST = Path(__file__).with_name("real_profiles.toml")
DOCS = Path(__file__).parents[1] / "docs" / "accuracy-profiles.md"
BEGIN, END = "<!-- real profiles: begin -->", "<!-- real profiles: end -->"

#: Files of one session → quantities by the names of QUANTITIES; shares 0–1, times in s, memory in bytes.
Oracle = Callable[[Sequence[Path]], Mapping[str, float]]
ORACLES: dict[str, Oracle] = {
    "xplane": of_xplanes,
    "xprof_json": of_exports,
    "kineto": of_traces,
    "nsight": of_nsight,
}

#: Name → label and unit.
QUANTITIES = {
    "step_time": ("Step time", "s"),
    "step_time_spread": ("Standard deviation of the step time", "s"),
    "duty_cycle": ("Duty cycle", "share"),
    "idle": ("Idle", "share"),
    "communication": ("Communication", "share"),
    "input": ("Input", "share"),
    "flops_utilization": ("FLOPs utilisation", "share"),
    "mxu_utilization": ("MXU utilisation", "share"),
    "hbm_utilization": ("HBM utilisation", "share"),
    "top_op": ("Share of the largest op", "share"),
    "peak_memory": ("Peak memory", "bytes"),
    "ops": ("Ops", "count"),
}
#: XProf prints one decimal of a percentage and of a millisecond.
_ROUNDING = {"share": 0.0005001, "s": 0.0000501, "bytes": 0.5, "count": 0.0}


@dataclass(frozen=True)
class Source:
    """A profile that others recorded: its files on this machine, where it comes from and its licence."""

    name: str
    kind: str
    files: tuple[Path, ...]
    origin: str
    licence: str


@dataclass(frozen=True)
class Row:
    """One quantity: what the oracle states, what we say, and why they differ or there is none."""

    quantity: str
    stated: float | None
    ours: float | None
    reason: str = ""

    @property
    def agrees(self) -> bool:
        """Whether both are equal within the rounding of what is printed."""
        if self.stated is None or self.ours is None:
            return self.stated is None and self.ours is None
        return abs(self.stated - self.ours) <= _ROUNDING[QUANTITIES[self.quantity][1]] + 1e-4 * abs(self.stated)


def sources(listed: Path = LIST) -> list[Source]:
    """Every listed profile whose files are all here."""
    data = tomllib.loads(listed.read_text())
    folders = [(listed.parent / folder).resolve() for folder in data["folders"]]
    every: list[Source] = []
    for entry in data["profile"]:
        for folder in folders:
            files = tuple(sorted(path for pattern in entry["files"] for path in folder.glob(pattern)))
            if files:
                every.append(Source(entry["name"], entry["kind"], files, entry["origin"], entry["licence"]))
                break
    return every


def compare(profile: StepProfile, stated: Mapping[str, float]) -> list[Row]:
    """A row for each quantity that either side has."""
    ours = _ours(profile)
    rows: list[Row] = []
    for name in QUANTITIES:
        said, value = stated.get(name), ours.get(name)
        # Without steps, or where the profile says nothing of a device's idle time, XProf prints 0.
        if name in ("step_time", "step_time_spread") and not said:
            said = None
        if name == "idle" and said is None:
            said = stated.get("idle_row")
        if said is None and value is None:
            continue
        row = Row(name, said, value)
        rows.append(row if row.agrees else Row(name, said, value, _reason(profile, name)))
    return rows


def _ours(profile: StepProfile) -> dict[str, float | None]:
    shares = {key: profile.kpis.get(key) for key, (_, unit) in QUANTITIES.items() if unit == "share"}
    return shares | {
        "step_time": profile.step_time_s,
        "step_time_spread": profile.step_time_stdev_s,
        "top_op": max((op.time_share for op in profile.ops), default=None),
        "peak_memory": profile.memory.peak_bytes,
        "ops": float(len(profile.ops)) if profile.ops else None,
    }


def _reason(profile: StepProfile, name: str) -> str:
    """Why the profile's value is not the oracle's, in its own words."""
    key = {"step_time_spread": "step_time", "top_op": "time_share", "peak_memory": "memory"}.get(name, name)
    if name == "ops":
        said = next((note.message for note in profile.notes if "ernels are listed" in note.message), "")
        return said or profile.computed.get("ops", "")
    return profile.computed.get(key) or profile.not_measured.get(key, "")


def table(source: Source) -> list[str]:
    """Lines of Markdown for one profile."""
    profile = read_profile(source.files)
    rows = compare(profile, ORACLES[source.kind](source.files))
    lines = [
        f"## {source.name}",
        f"{source.origin} ({source.licence}).",
        "",
        "| quantity | reported | ASAP Web | difference | reason |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        label, unit = QUANTITIES[row.quantity]
        lines.append(
            f"| {label} | {_text(row.stated, unit)} | {_text(row.ours, unit)} | {_difference(row)} | {row.reason} |"
        )
    left = [note.message for note in profile.notes if note.severity in ("warning", "info")]
    return [*lines, "", *(f"- {message}" for message in left), ""]


def _text(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    match unit:
        case "share":
            return f"{value:.2%}"
        case "s":
            return f"{value * 1e3:.4g} ms"
        case "bytes":
            return f"{value / 1e9:.4g} GB"
        case _:
            return f"{value:,.0f}"


def _difference(row: Row) -> str:
    if row.agrees:
        return "none"
    if row.stated is None:
        return "ASAP Web only"
    if row.ours is None:
        return "not reported"
    return f"{(row.ours - row.stated) / row.stated:+.1%}" if row.stated else "reported as 0"


def write(docs: Path, listed: Sequence[Source]) -> None:
    """Put the tables of the profiles between the markers in the docs page."""
    text = docs.read_text()
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    lines = [line for source in listed for line in table(source)]
    docs.write_text(head + BEGIN + "\n" + wrapped("\n".join(lines)) + END + tail)


def main() -> None:
    listed, named = sources(), len(tomllib.loads(LIST.read_text())["profile"])
    if len(listed) < named:  # a page of some would lose the tables of the others
        absent = f"{named - len(listed)} of the {named} profiles in real_profiles.toml"
        print(f"Skipped: {absent} are not on this machine; docs/accuracy-profiles.md is unchanged.")
        return
    write(DOCS, listed)
    print(f"docs/accuracy-profiles.md: {len(listed)} profiles.")


if __name__ == "__main__":
    main()
