"""What was measured: why the step is slow, one op, collectives, the figures, what could be saved, what ran."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from experiments.step_profile import PROFILE
from proposals import facts
from proposals.agents.reasoner import words
from proposals.agents.reasoner.axes import axis_of, words_for
from proposals.agents.reasoner.desk import Answer, Desk
from proposals.agents.reasoner.understand import Asked

Row = Mapping[str, Any]
_PARTS = {
    "compute": "compute", "hbm": "HBM", "dcn": "across slices", "host": "host", "host_transfer": "host transfers",
    "input": "input", "idle": "idle", "kernel_launches": "kernel launches",
    "other": "other",
}  # fmt: skip
_SHARES = {
    "mfu": "MFU", "flops_utilization": "FLOPs utilisation", "hbm_utilization": "HBM utilisation",
    "duty_cycle": "duty cycle", "communication": "communication", "communication_exposed": "exposed communication",
    "idle": "idle", "input": "input", "host": "host", "goodput": "goodput", "stragglers": "stragglers",
    "memory_peak_share": "peak memory",
}  # fmt: skip


def why_slow(desk: Desk, asked: Asked) -> Answer:
    found = yield from desk.look("bottleneck")
    verdict = found.data
    yield from desk.say(
        (
            f"**{str(verdict['primary']).capitalize()}**, says the verdict "
            f"({words.percent(verdict['confidence_share'])} confidence)."
        ),
        str(verdict["statement"]),
    )
    kpis = yield from desk.look("kpis")
    yield from _breakdown(desk, kpis.data)
    if verdict.get("contradictions"):
        yield from desk.say("What pointed elsewhere, and why it does not count:")
        yield from desk.bullets([str(item) for item in verdict["contradictions"][:2]])
    findings = yield from desk.look("findings")
    rows = findings.data.get("rows", [])
    if rows:
        yield from desk.say("What costs most:")
        yield from desk.bullets([f"{item['title']}: {item['insight']}" for item in rows[:3]])


def _breakdown(desk: Desk, kpis: Row) -> Answer:
    shares, seconds = kpis.get("breakdown_share") or {}, kpis.get("breakdown_s") or {}
    parts = sorted((part for part, value in shares.items() if value >= 0.002), key=lambda part: -shares[part])
    if not parts:
        return
    name = {part: _PARTS.get(part, f"communication on {part.removeprefix('ici:')}") for part in parts}
    if seconds:
        step = kpis.get("step_time_s")
        how = "predicted, not measured" if kpis.get("breakdown_origin") else "measured"
        yield from desk.say(
            f"Where the {words.time(step)} of a step go, {how}:" if step else f"Where the time goes, {how}:"
        )
        yield from desk.table(
            ["Part", "Time per step", "Share"],
            [[name[p], words.time(seconds[p]), words.share(shares[p])] for p in parts],
        )
    else:
        yield from desk.table(["Part", "Share of device time"], [[name[p], words.share(shares[p])] for p in parts])


def _predicted(desk: Desk, error: str) -> Answer:
    """In the place of what no profile measured: that it is so, and the predicted breakdown."""
    yield from desk.say(f"{error.partition(';')[0].removesuffix('.')}.")
    kpis = yield from desk.look("kpis")
    yield from _breakdown(desk, kpis.data)


def op(desk: Desk, asked: Asked) -> Answer:
    name = asked.ops[0] if asked.ops else desk.focus.op or "#1"
    if name == "collective":
        yield from desk.say("The longest collective of the step:")
        found = yield from desk.look("ops", category="collective", top=1)
        if not found:
            yield from _predicted(desk, found.error)
            return
        rows = found.data.get("rows") or []
        if not rows:
            yield from desk.say("The profile holds no collective.")
            return
        name = rows[0]["name"]
    found = yield from desk.look("op", op=name, hops=1)
    if not found:
        yield from desk.say(found.error)
        return
    yield from _one_op(desk, found.data)


def _one_op(desk: Desk, row: Row) -> Answer:
    took = f"{words.time(row['time_s'])} per step and core, " if row.get("time_s") else ""
    place = "the longest op of the step" if row["rank"] == 1 else f"rank {row['rank']} by time"
    yield from desk.say(
        f"`{row['name']}` is {place}: {took}{words.share(row['time_share'])} of device time.", _what_it_is(row)
    )
    items = []
    if row.get("collective"):
        axis = row.get("mesh_axis")
        axes = " and ".join(axis) if isinstance(axis, list) else axis
        text = (
            f"{row['collective']} on the {axes} {'axes' if isinstance(axis, list) and len(axis) > 1 else 'axis'}"
            if axes and axes != "dcn"
            else f"{row['collective']} across slices"
            if axes == "dcn"
            else f"{row['collective']}, whose axis the profile does not tell"
        )
        items.append(text + (f"; it moves {row['tensor']}" if row.get("tensor") else ""))
        if row.get("achieved_bytes_per_s") and row.get("possible_bytes_per_s"):
            items.append(
                f"achieved bandwidth {row['achieved_bytes_per_s'] / 1e9:.3g} GB/s of "
                f"{row['possible_bytes_per_s'] / 1e9:.3g} GB/s that the links allow"
            )
        if row.get("exposed_s") is not None and row.get("time_s"):
            hidden = row["exposed_s"] < 0.05 * row["time_s"]
            items.append(
                "nearly all of it is hidden beside other work"
                if hidden
                else f"of `{row['name']}` {words.time(row['exposed_s'])} a step are exposed, with nothing beside it"
            )
    elif row.get("bound_by"):
        roof = row.get("roofline_efficiency")
        reaches = f", and reaches {words.share(roof)} of that roof" if roof is not None else ""
        unknown = str(row["bound_by"]).lower() == "unknown"
        items.append(
            "XProf does not say what bounds it"
            if unknown
            else f"`{row['name']}` is bound by {row['bound_by']}{reaches}"
        )
    ridge = (row.get("roofline") or {}).get("ridge_flops_per_byte")
    if row.get("operational_intensity") and ridge and not row.get("collective"):
        side = (
            "left of the ridge, where bandwidth limits"
            if row["operational_intensity"] < ridge
            else "right of the ridge, where arithmetic limits"
        )
        items.append(
            f"operational intensity {row['operational_intensity']:.3g} FLOP/byte; the ridge lies at "
            f"{ridge:.4g}, so it is {side}"
        )
    if row.get("source"):
        items.append(
            f"from `{row['source']}`"
            + (
                f", {row['phase']} pass"
                if row.get("phase") in ("forward", "backward")
                else f", {row['phase']}"
                if row.get("phase")
                else ""
            )
        )
    yield from desk.bullets(items)
    around = row.get("neighbourhood") or {}
    near = []
    for side, word in (("operands", "takes the results of"), ("users", "feeds")):
        names = [f"`{each['name']}`" for each in (around.get(side) or ())[:3]]
        near += [f"{word} {words.listed(names)}"] if names else []
    if near:
        yield from desk.say(f"In the program it {words.listed(near)}.")
    yield from _finding_of(desk, row)


def _what_it_is(row: Row) -> str:
    module = f" in the {row['module']}" if row.get("module") else ""
    family = row.get("family") or row.get("category")
    article = "An" if str(family)[:1].lower() in "aeiou" else "A"
    return f"{article} {family} op{module}." if family else ""


def _finding_of(desk: Desk, row: Row) -> Answer:
    """What the diagnosis says of it."""
    found = yield from desk.look("findings")
    for item in found.data.get("rows", []):
        if row["key"] in {key for each in item.get("evidence", ()) for key in each.get("ops", ())}:
            yield from desk.say(f"What to do about it: {item['action']}")
            return


def _time(row: Row, key: str) -> str:
    return words.time(row[key]) if row.get(key) else "–"


def _limit(row: Row) -> str:
    """What an op waits for: the axis of a collective, else the roof."""
    axis = row.get("mesh_axis")
    return " and ".join(axis) if isinstance(axis, list) else str(axis or row.get("bound_by") or "–")


def ops(desk: Desk, asked: Asked) -> Answer:
    found = yield from desk.look("ops", top=8)
    if not found:
        yield from _predicted(desk, found.error)
        return
    yield from desk.say("The longest ops of the step, measured:")
    rows = found.data.get("rows") or []
    yield from desk.table(
        ["Op", "Time per step", "Share", "Kind", "Limited by"],
        [
            [f"`{r['name']}`", _time(r, "time_s"), words.share(r["time_share"]), r.get("family", ""), _limit(r)]
            for r in rows
        ],
    )  # fmt: skip
    yield from desk.say("Name one, and I say where it stands against its roof and what surrounds it.")


def communication(desk: Desk, asked: Asked) -> Answer:
    mesh = desk.bench.config.mesh
    named = [axis_of(mesh, word) for word in words_for(mesh) if word in asked.text.split()]
    axis = next((each for each in named if each and dict(mesh.ici).get(each, 1) > 1), "")
    found = yield from desk.look("collectives", axis=axis)
    if not found and desk.bench.profile.basis != PROFILE:
        yield from _predicted(desk, found.error)
        return
    if not found:
        yield from desk.say(found.error)
        found = yield from desk.look("collectives")
    rows = found.data.get("rows") or []
    if not rows:
        yield from desk.say("The profile holds no collective, so no communication was measured.")
        return
    shares = found.data.get("of_the_step_share") or {}
    if "communication_exposed" in shares and not axis:
        yield from desk.say(
            f"Exposed communication takes {words.share(shares['communication_exposed'])} of the step, measured."
        )
    else:
        yield from desk.say(f"Collectives{f' on {axis}' if axis else ''}, measured per step and core:")
    lines = []
    for row in rows[:8]:
        hidden = row.get("hidden_share")
        of = row.get("achieved_of_possible_share")
        lines.append(
            [
                str(row.get("axis") or "not matched"),
                str(row["kind"]),
                _time(row, "time_s"),
                _time(row, "exposed_s"),
                words.share(hidden) if hidden is not None else "–",
                words.share(of) if of is not None else "–",
            ]
        )
    yield from desk.table(["Axis", "Collective", "Time", "Exposed", "Hidden", "Bandwidth achieved of possible"], lines)
    costly = max((row for row in rows if row.get("exposed_s")), key=lambda row: row["exposed_s"], default=None)
    if costly:
        yield from desk.say(
            (
                f"Most exposed is the {costly['kind']} on the {costly['axis'] or 'unmatched'} axis with "
                f"{words.time(costly['exposed_s'])} a step"
            )
            + (f"; it moves {words.listed([str(t) for t in costly['tensors']])}." if costly.get("tensors") else ".")
        )


def figures(desk: Desk, asked: Asked) -> Answer:
    if re.search(r"\bhow many\b.*\bsteps\b", asked.text):
        ran = yield from desk.look("run")
        profile = ran.data.get("profile") or {}
        steps, label = profile.get("steps"), f", {profile['label']}" if profile.get("label") else ""
        yield from desk.say(
            f"{steps:,} {'step was' if steps == 1 else 'steps were'} recorded in the profile{label}."
            if steps
            else "The profile does not hold its steps one by one."
        )
    found = yield from desk.look("kpis")
    kpis = found.data
    if kpis.get("step_time_s"):
        yield from desk.say(f"A step takes {words.time(kpis['step_time_s'])}, measured.")
    else:
        yield from desk.say("The profile has no step time.")
    shares = kpis.get("shares_0_to_1") or {}
    rows = [[name, words.share(shares[key])] for key, name in _SHARES.items() if shares.get(key) is not None]
    yield from desk.table(["Figure", "Measured"], rows)
    missing = kpis.get("not_measured") or {}
    asked_for = [key for key in missing if key.replace("_", " ") in asked.text or key in asked.text]
    for key in asked_for or list(missing)[:2]:
        name = _SHARES.get(key) or {"step_time_s": "step time", "mxu_utilization": "MXU utilisation"}.get(
            key, key.replace("_", " ")
        )
        yield from desk.say(
            f"{name[:1].upper()}{name[1:]} was not measured: {missing[key]}"
            + ("" if str(missing[key]).endswith(".") else ".")
        )
    if shares.get("mfu") is not None and kpis.get("mfu_convention") and "mfu" in asked.text:
        yield from desk.say(f"MFU here means: {kpis['mfu_convention']}.")


def improve(desk: Desk, asked: Asked) -> Answer:
    yield from desk.say("By what each could save at most, as if it vanished; the bounds overlap and do not add up:")
    found = yield from desk.look("findings")
    rows = found.data.get("rows", [])
    items = []
    for row in rows[:5]:
        bound = (
            f" ({words.time(row['saving_s'])} a step at most, {words.share(row['saving_share'])})"
            if row.get("saving_s") and row.get("saving_share")
            else ""
        )
        items.append(f"**{row['title']}**{bound}: {row['action']}")
    yield from desk.bullets(items) if items else desk.say("The diagnosis found nothing that stands out.")
    yield from desk.say("What a mesh or a policy can do about them is in the proposals; ask for the first.")


def run(desk: Desk, asked: Asked) -> Answer:
    found = yield from desk.look("run")
    data = found.data
    config = data["configuration"]
    training = config.get("training", {})
    yield from desk.say(f"{words.mesh(data)} on {data['chips']:,} chips ({config['hardware']['chip']}).")
    items = []
    if config.get("model"):
        model = config["model"]
        name = str(model.get("name") or "")
        items.append(
            f"model: {name if name[:1].isalpha() else 'of its own shape'}"
            + (
                f", {model['layers']} layers, d_model {model['d_model']:,}, {model['heads']} heads"
                if model.get("layers")
                else ""
            )
        )
    for key in ("global_batch", "seq_len", "precision", "optimizer", "weight_sharding", "remat", "grad_accum"):
        if training.get(key) is not None:
            value = training[key]
            items.append(
                f"{facts.setting(key)}: {value:,}" if isinstance(value, int) else f"{facts.setting(key)}: {value}"
            )
    yield from desk.bullets(items)
    if data.get("not_known"):
        yield from desk.say(f"Not known: {facts.in_words(data['not_known'])}.")
