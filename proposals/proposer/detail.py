"""Details of a proposal: communication by axis, and neighbouring configurations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from math import exp, log

import numpy as np

from perfmodel.config import ExperimentConfig, Mesh, missing_facts
from perfmodel.price import NOTHING, Evidence, predict_all
from proposals.candidate import Candidate, candidate
from proposals.plan import Communication, Neighbour
from proposals.proposer.case import LADDER
from proposals.proposer.changes import Change
from proposals.proposer.limits import Rule, reason
from proposals.proposer.observed import CARRIED, TRAFFIC
from proposals.proposer.prices import PricedCandidates, axes_of_group, gains

#: Smaller gains and losses, as a logarithm, are the model's rounding.
DISPUTED = 0.01


def communication(priced: PricedCandidates, index: int) -> tuple[Communication, ...]:
    """Exposed communication before and after."""
    c, prices, base = priced.candidates, priced.prices, priced.candidates.baseline
    rows: dict[tuple[tuple[str, ...], str, bool], list[float]] = {}
    meshes = (c.mesh(base), c.mesh(index))
    for name, values in prices.parts_s.items():
        if name != "dcn" and not name.startswith("ici"):
            continue
        before, after = float(values[base]), float(values[index])
        if max(before, after) <= 0:
            continue
        group = name.partition(":")[2]
        if group:
            axes = dict.fromkeys(axis for mesh in meshes for axis in axes_of_group(group, c.config, mesh))
            key = (tuple(axes), CARRIED[TRAFFIC[group]][0], False)
        elif name == "dcn":
            across = dict.fromkeys(axis for mesh in meshes for axis, size in mesh.dcn if size > 1)
            roles = {c.config.mesh.role(axis) for axis in across}
            key = (tuple(across), _moved_tensors(roles), True)
        else:
            key = ((), "unattributed", False)
        row = rows.setdefault(key, [0.0, 0.0])
        row[0] += before
        row[1] += after
    ran, timed = float(prices.step_time_s[base]), priced.timed
    return tuple(
        Communication(axes, moved, b if timed else None, a if timed else None, dcn, b / ran, a / ran)
        for (axes, moved, dcn), (b, a) in rows.items()
    )


def parts(priced: PricedCandidates, index: int) -> dict[str, dict[str, float]]:
    """Seconds of the step by part, {"before", "after"}, for the tokens of the current step, collectives by what they
    move: an axis whose traffic changes its kind is two parts."""
    candidates, by_name = priced.candidates, dict[str, dict[str, float]]()
    for name, values in priced.prices.parts_s.items():
        kind = TRAFFIC.get(name.removeprefix("ici:")) if name.startswith("ici:") else None
        words = CARRIED[kind][1] if kind else _PARTS.get(name, name.replace("_", " "))
        row = by_name.setdefault(words, {"before": 0.0, "after": 0.0})
        row["before"] += float(values[candidates.baseline])
        row["after"] += float(values[index] / candidates.tokens_ratio[index])
    return by_name


_PARTS = {"hbm": "HBM", "dcn": "DCN communication", "ici": "communication"}


def _moved_tensors(roles: set[str]) -> str:
    kinds = [TRAFFIC[role] for role in ("model", "seq", "expert", "pipeline") if role in roles]
    if roles & {"data", "fsdp", "replica"} or not kinds:
        kinds.insert(0, "weights")
    return ", ".join(CARRIED[kind][0] for kind in kinds)


def disputed(config: ExperimentConfig, mesh: Mesh, change: Change, evidence: Evidence) -> dict[str, dict[str, float]]:
    """Speed-ups per token that each element of a proposal adds, where the evidence and the model alone disagree.

    By element (`mesh`, or a training key) the speed-up of the whole over the whole without it: {"measured": under the
    evidence, "model": without any}, one of them a gain and the other a loss of more than DISPUTED.
    """
    if missing_facts(config) or not evidence.is_measured:
        return {}
    parts = {"mesh": (config.mesh, change)} if mesh != config.mesh else {}
    parts |= {key: (mesh, {name: change[name] for name in change if name != key}) for key in change}
    pairs = [(mesh, change), *parts.values()]
    configs = [replace(candidate(config, Candidate(own.to_json(), dict(more))), measured=None) for own, more in pairs]
    logs = {}
    for name, known in (("measured", evidence), ("model", NOTHING)):
        times = [
            log(one.step_time_s["estimate"] / (of.training.global_batch or 1)) if one.step_time_s else 0.0
            for of, one in zip(configs, predict_all(configs, known), strict=True)
        ]
        logs[name] = [time - times[0] for time in times[1:]]
    return {
        element: {"measured": exp(seen), "model": exp(alone)}
        for element, seen, alone in zip(parts, logs["measured"], logs["model"], strict=True)
        if seen * alone < 0 and min(abs(seen), abs(alone)) > DISPUTED
    }


def steps_from(config: ExperimentConfig, mesh: Mesh, change: Change) -> Iterator[Neighbour]:
    """Each axis doubled while a partner is halved, the batch halved and doubled, and the next remat policies."""
    for place in ("ici", "dcn"):
        sizes = dict(getattr(mesh, place))
        for up, down in permutations(sizes, 2):
            if sizes[down] % 2 == 0:
                moved = {**sizes, up: sizes[up] * 2, down: sizes[down] // 2}
                words = f"{up} {sizes[up]} → {moved[up]}, {down} {sizes[down]} → {moved[down]}"
                across = " over DCN" if place == "dcn" else ""
                pairs = tuple(moved.items())
                stepped = replace(mesh, ici=pairs) if place == "ici" else replace(mesh, dcn=pairs)
                yield Neighbour("mesh", words + across, stepped.to_json(), change)
    training = config.training
    batch = change.get("global_batch", training.global_batch)
    for new in (batch // 2 if batch % 2 == 0 else 0, batch * 2) if batch else ():
        if new:
            changes = own_change(config, change, "global_batch", new)
            yield Neighbour("batch", f"global batch {batch} → {new}", mesh.to_json(), changes)
    if missing_facts(config):
        return  # what a policy would do cannot be priced
    policy = change.get("remat", training.remat)
    at = LADDER.index(policy)
    for name in (*LADDER[max(0, at - 1) : at], *LADDER[at + 1 : at + 2]):
        changes = own_change(config, change, "remat", name)
        yield Neighbour("remat", f"remat policy {policy} → {name}", mesh.to_json(), changes)


def own_change(config: ExperimentConfig, change: Change, key: str, value: object) -> Change:
    """A change with one more key, or one fewer if that is the current value."""
    rest = {name: item for name, item in change.items() if name != key}
    return rest if getattr(config.training, key) == value else {**rest, key: value}


def neighbours(steps: Sequence[Neighbour], priced: PricedCandidates, rules: Sequence[Rule]) -> Iterator[Neighbour]:
    """Yield the steps as priced: candidate 1 is the proposal they start from, candidate 2 + n is step n."""
    candidates, gain = priced.candidates, gains(priced.prices)
    for index, step in enumerate(steps, start=2):
        predicted = priced.predicted(index)
        broken = next((rule for rule in rules if rule.broken[index]), None)
        time, used = predicted.step_time_s, predicted.hbm_per_chip_bytes
        yield replace(
            step,
            mesh=candidates.mesh(index).to_json(),
            step_time_s=time and replace(time, lower=None, upper=None),
            speedup=predicted.speedup,
            relative=float(np.exp(gain[index] - gain[1])),
            memory_bytes=used.total if used else None,
            rule=broken.name if broken else "",
            reason=reason(candidates, index, broken) if broken else "",
        )
