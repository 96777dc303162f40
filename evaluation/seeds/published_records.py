"""The pairs of published runs as records: their words, figures and caveats."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import gcd
from statistics import median
from typing import Any

from evaluation.published import load_published
from evaluation.seeds.published_pairs import Pair, Run, pairs
from history.record import Record, Side, outcome_of
from perfmodel.accounting import parameters

#: Characters of a change that a title gives in full; of a longer one it names the setting.
LONGEST_IN_TITLE = 60
_WORDS = {
    "global_batch": "global batch",
    "micro_batch": "micro-batch",
    "virtual_stages": "virtual stages",
    "weight_sharding": "weight sharding",
    "sequence_parallel": "sequence parallelism",
}


def records() -> list[Record]:
    """A record of every pair, in the order of the table."""
    return [_record(pair) for pair in pairs()]


def _record(pair: Pair) -> Record:
    before, after = pair.before, pair.after
    config, shape = after.published.config, after.published.shape
    speedup = round(pair.speedup, 4)
    change = "; ".join(_changes(pair))
    return Record(
        id=f"runs-{before.published.id}-{after.published.id}",
        title=f"{_short(pair)}: {shape.name} on {config.hardware.chips} × {config.hardware.chip}",
        change=change,
        changes=pair.kinds,
        before=_side(before),
        after=_side(after),
        outcome=outcome_of(speedup),
        source=_source(pair),
        chip=config.hardware.chip,
        chips=config.hardware.chips,
        topology=tuple(config.hardware.topology),
        slices=config.hardware.slices,
        model_name=shape.name,
        model_family=after.published.family,
        parameters=parameters(shape).total,
        bottleneck=_bottleneck(pair),
        speedup=speedup,
        measure=pair.measure,
        effect=_effect(pair),
        caveats=tuple(_caveats(pair)),
        url=_url(after),
        licence=after.row["source_licence"],
    )


#: A narrower precision or a lighter remat policy that gains so much proves that compute determine the time.
PROVES_COMPUTE = 1.1


def _bottleneck(pair: Pair) -> str:
    """Derived where the pair itself shows it: only arithmetic or recomputation changed, and the run got faster by
    `PROVES_COMPUTE`; empty elsewhere, since the tables publish no breakdown of the step."""
    arithmetic = set(pair.kinds) - {"xla_flags"} in ({"precision"}, {"remat"}, {"precision", "remat"})
    return "compute" if arithmetic and pair.speedup >= PROVES_COMPUTE else ""


#: Where the repository only passes on what a paper published.
_PAPERS = {"calculon-ai/calculon": "Korthikanti et al. (arXiv 2205.05198), Table 5, as Calculon encodes it"}


def _source(pair: Pair) -> str:
    row = pair.after.row
    if row["source_repo"] in _PAPERS:
        return _PAPERS[row["source_repo"]]
    paths = " and ".join(sorted({run.row["path"] for run in (pair.before, pair.after)}))
    releases = sorted({run.release for run in (pair.before, pair.after) if run.release})
    return f"{row['source_repo'].split('/')[-1]}, {paths}" + (f" ({' and '.join(releases)})" if releases else "")


def _url(run: Run) -> str:
    row = run.row
    return f"https://github.com/{row['source_repo']}/blob/{row['commit']}/{row['path']}"


def _changes(pair: Pair) -> list[str]:
    before, after = pair.before, pair.after
    axes = list(dict.fromkeys((*before.axes, *after.axes)))
    parts = [_moved(axis, before.axes.get(axis, 1), after.axes.get(axis, 1)) for axis in axes]
    for key in (key for key in (*_WORDS, "precision", "remat") if key in pair.differing):
        parts.append(_moved(_WORDS.get(key, key), before.settings.get(key), after.settings.get(key)))
    if before.saved != after.saved and before.settings.get("remat") == after.settings.get("remat"):
        parts.append(f"remat {_kept(before)} → {_kept(after)}")
    old, new = set(before.settings["xla_flags"]), set(after.settings["xla_flags"])
    if old != new:
        parts.append(f"XLA flags: {len(new - old)} added, {len(old - new)} dropped")
    if before.release != after.release:
        parts.append(f"NeMo {before.release} → {after.release}")
    return [part for part in parts if part]


def _kept(run: Run) -> str:
    """`mlpwo offload, key_proj device`: the named activations of a remat policy and where they wait."""
    return ", ".join(f"{name} {where}" for name, where in run.saved.items()) or "nothing named"


def _moved(name: str, before: Any, after: Any) -> str:
    if before == after:
        return ""
    return f"{name} {_setting_text(before)} → {_setting_text(after)}"


def _setting_text(value: Any) -> str:
    if value is None:
        return "not stated"
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _short(pair: Pair) -> str:
    """The change in a title: its first two parts."""
    parts = [part for part in _changes(pair) if not part.startswith("XLA flags")]
    parts = [part if len(part) <= LONGEST_IN_TITLE else part.split(" ", 1)[0] for part in parts]
    return ", ".join(parts[:2]) + (" …" if len(parts) > 2 else "")


def _side(run: Run) -> Side:
    mesh = run.data["mesh"]
    sizes = {where: {axis: size for axis, size in mesh[where].items() if size > 1} for where in ("ici", "dcn")}
    if not sizes["ici"]:
        sizes["ici"] = dict(mesh["ici"])
    training = {key: value for key, value in run.settings.items() if key != "xla_flags"}
    training |= {"seq_len": run.row["seq_len"]}
    if run.settings["xla_flags"]:
        training["xla_flags"] = list(run.data["training"]["xla_flags"])
    if run.data["training"]["grad_accum"] > 1:
        training["grad_accum"] = run.data["training"]["grad_accum"]
    if run.release:
        training["software"] = f"NeMo {run.release}"
    axes = ", ".join(f"{axis} {size}" for axis, size in run.axes.items()) or "no parallel axis"
    batch = f"global batch {run.settings['global_batch']}"
    release = f", NeMo {run.release}" if run.release else ""
    return Side(
        label=f"{axes}; {run.settings['precision']}, {batch}{release}",
        mesh=sizes,
        training=training,
        kpis=_kpis(run),
    )


def _kpis(run: Run) -> dict[str, float | str]:
    row = run.row
    kpis: dict[str, float | str] = {}
    if row["step_time_s"] and "step_time derived" not in row["notes"]:
        kpis["step_time_s"] = row["step_time_s"]
    if row["tokens_per_s_per_chip"]:
        kpis["tokens_per_s_per_chip"] = row["tokens_per_s_per_chip"]
    if row["tflops_per_chip"] and "TFLOP/s disagree" not in row["notes"]:
        kpis["flops_per_s_per_chip"] = row["tflops_per_chip"] * 1e12
    if row["mfu"]:
        kpis["mfu"] = row["mfu"]
    if row["flops_convention"]:
        kpis["mfu_convention"] = row["flops_convention"]
    return kpis


def _effect(pair: Pair) -> str:
    before, after = pair.before.row, pair.after.row
    percent = f"({_percent(pair.speedup)} throughput)"
    if pair.measure == "tokens/s per chip":
        old, new = before["tokens_per_s_per_chip"], after["tokens_per_s_per_chip"]
        digits = 0 if min(old, new) >= 1000 or (old == int(old) and new == int(new)) else 1
        return f"{old:,.{digits}f} → {new:,.{digits}f} tokens/s per chip {percent}"
    if pair.measure == "step time":
        return f"Step time {before['step_time_s']:g} → {after['step_time_s']:g} s {percent}"
    return f"{before['tflops_per_chip']:g} → {after['tflops_per_chip']:g} TFLOP/s per chip {percent}"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %".replace("-", "−")


def _caveats(pair: Pair) -> Iterator[str]:
    rows = (pair.before.row, pair.after.row)
    if _bottleneck(pair):
        yield "The bottleneck is derived: fewer FLOPs alone made the step this much faster."
    if len(changed := _changed(pair)) > 1:
        yield f"{_listed(changed)} changed together: the effect is not due to one setting."
    if "software" in pair.kinds:
        yield _about_drift(pair)
    if pair.repeats:
        low, high = min(pair.repeats), max(pair.repeats)
        span = f"{low:.2f}×" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f}× to {high:.2f}×"
        yield f"Earlier releases publish the same pair {len(pair.repeats)} times: {span}."
    known = [row["remat"] or "recompute" in (row.get("settings") or {}) for row in rows]
    if pair.before.row["framework"] == "Megatron-Bridge" and not any(known):
        yield "The source does not state rematerialisation; recipes recompute what does not fit."
    if any("alternate values" in row["notes"] for row in rows):
        yield "A row prints a second set of values in parentheses; the first is kept."
    if any(row["precision"] is None for row in rows):
        yield "Release 25.09 prints no precision; its TFLOP/s exceed what bf16 allows, so FP8 is taken."
    if any("TFLOP/s disagree" in row["notes"] for row in rows):
        yield "The rows' TFLOP/s disagree with their tokens/s and are left out."
    for release in sorted({pair.before.release, pair.after.release}):
        if (step := _printed_steps(release)) > 1:
            yield f"NeMo {release} prints tokens/s in multiples of {step}."
    if pair.before.data["hardware"]["chip"] == "tpu7x":
        yield "The mesh counts chips; one Ironwood chip is two JAX devices, which MaxText counts."
    if "precision" in pair.kinds and all(row["mfu"] and row["tflops_per_chip"] for row in rows):
        peaks = [row["tflops_per_chip"] / row["mfu"] for row in rows]
        if peaks[1] > 1.01 * peaks[0]:
            yield "MFU after the change is against the peak of the narrower precision; the effect is from tokens/s."
        else:
            yield "MFU is against the same peak on both sides, not against that of the narrower precision."
    if any(
        "before PR#1988" in str(row["flops_convention"]) or "predates PR#1988" in str(row["flops_convention"])
        for row in rows
    ):
        yield (
            "TFLOP/s count attention over the whole sequence (MaxText before its pull request 1988), "
            "on both sides alike."
        )
    if pair.before.data["hardware"]["topology"] != pair.after.data["hardware"]["topology"]:
        yield "The interconnect differs: the number of slices changed with the mesh."
    if any("CORRECTED" in row["notes"] for row in rows):
        yield "The source's own batch or device count contradicts its log; the log's is used."


def _about_drift(pair: Pair) -> str:
    releases = f"NeMo {pair.before.release} to {pair.after.release}"
    leap = f" On all chips, the largest move was {_percent(pair.leap[0])} ({pair.leap[1]})." if pair.leap else ""
    if not pair.drift:
        return f"The software changed too ({releases}), and no workload on this chip shows what that alone did.{leap}"
    low, mid, high = (_percent(share) for share in (min(pair.drift), median(pair.drift), max(pair.drift)))
    count = len(pair.drift)
    if count == 1:
        return f"From {releases}, the throughput of the one other unchanged workload on this chip moved by {mid}.{leap}"
    many = f"{count} other unchanged workloads on this chip"
    return f"From {releases}, the throughput of {many} moved by {low} to {high}, median {mid}.{leap}"


def _changed(pair: Pair) -> list[str]:
    """Names of what changed, the release aside."""
    names = ["mesh"] if "mesh" in pair.kinds else []
    for key in (*_WORDS, "precision", "remat", "xla_flags"):
        if key in pair.differing:
            names.append(_WORDS.get(key, key).replace("xla_flags", "XLA flags"))
    return names


def _listed(names: list[str]) -> str:
    text = ", ".join(names[:-1]) + f" and {names[-1]}"
    return text[0].upper() + text[1:]


@cache
def _printed_steps(release: str) -> int:
    """The number that every tokens/s of a release is a multiple of; 1 where they are printed in full."""
    throughputs = [
        run.row["tokens_per_s_per_chip"] for run in map(Run, load_published().runs) if run.release == release
    ]
    return gcd(*(int(tokens) for tokens in throughputs if tokens)) if release else 1
