"""What a configuration would do, why one is not proposed, how several compare, and whether they fit."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any

from perfmodel.config import ConfigError
from proposals.agents.conversation import Question, Said
from proposals.agents.reasoner import settings, words
from proposals.agents.reasoner.answers import common, verdict
from proposals.agents.reasoner.desk import Answer, Desk
from proposals.agents.reasoner.meshes import solve
from proposals.agents.reasoner.told import fact_sentence
from proposals.agents.reasoner.understand import Asked
from proposals.constraints import same_mesh

Row = Mapping[str, Any]


def what_if(desk: Desk, asked: Asked) -> Answer:
    if asked.supposed:
        yield from _suppose(desk, asked)
        if not (asked.mesh or asked.changes):
            return
    meant = yield from common.configurations(desk, asked)
    if meant.problem:
        yield from desk.say(meant.problem)
        yield from _which_axes(desk)
        return
    many = len(meant.configurations) > 1
    yield from desk.say(_opening(desk, asked, meant))
    if unknown := settings.unknown_before(asked.changes, desk.bench.config.training):
        yield from _unknown_before(desk, asked, meant, unknown)
        return
    if many:
        yield from _ways(desk, meant, asked)
        return
    row = yield from common.predicted(desk, meant.configurations[0])
    if isinstance(row, str):
        yield from desk.say(f"That can not be priced: {row}")
        return
    yield from _priced(desk, row)
    if asked.changes and not asked.mesh and not asked.also and not asked.points_back and not asked.proposals:
        yield from _on_the_first(desk, asked, row)
    yield from common.offered(row)


def _opening(desk: Desk, asked: Asked, meant: common.Meant) -> str:
    ways = [words.mesh_of({"ici": item["ici"], "dcn": item["dcn"] or {}}) for item in meant.configurations]
    changed = words.changes({"changes": meant.configurations[0]["changes"]})
    if len(ways) > 1:
        single = asked.mesh.single
        named = f"{single[0]} {single[1]}" if single else "What you named"
        return (
            f"{named} leaves open which axis takes the rest, so I price "
            f"{words.listed(ways)}{f' with {changed}' if changed else ''}."
        )
    filled = f" ({words.listed(list(meant.filled))} set so that the product is right)" if meant.filled else ""
    of = (
        f", on {meant.base}"
        if not asked.mesh and meant.base != "what runs"
        else ", on the mesh that runs"
        if not asked.mesh
        else ""
    )
    return f"Pricing {ways[0]}{filled}{f' with {changed}' if changed else ''}{of}, from what this profile measured."


def _priced(desk: Desk, row: Row) -> Answer:
    """One configuration as `predict` has it."""
    broken = words.violations(row)
    if broken:
        yield from desk.say(f"**It can not run as it is**: {broken[0]}", *broken[1:3])
        if row.get("step_time_s") and not any(item["rule"] in ("chips", "axis_role") for item in row["violations"]):
            yield from desk.more(f"If it could, it would be predicted at {words.speed(row)}.")
        yield from _memory_parts(desk, row)
        return
    stands = row.get("stands_as_proposal")
    ran = row.get("what_runs") or {}
    if not row.get("changes") and row.get("mesh_text") == ran.get("mesh_text"):
        yield from desk.say(f"That is what runs: {words.estimate(ran)} a step, measured.")
        return
    doubts = words.open_questions(row)
    head = (
        f"It is proposal {stands}. "
        if stands
        else f"It breaks no rule that can be checked, but: {doubts[0]} "
        if doubts
        else "It may run. "
    )
    value = row.get("speedup_per_token")
    if value is None:
        yield from desk.say(
            f"{head}No speed-up can be predicted: not known: {words.missing(row.get('not_known', ()))}."
        )
        return
    yield from desk.say(
        f"{head}**Predicted {words.ratio(value)} per token** (range {words.span(row)}, in four of five "
        f"such cases), confidence {words.percent(row['confidence_share'])} that it gains at all."
    )
    if isinstance(row.get("step_time_s"), Mapping) and ran.get("step_time_s"):
        yield from desk.more(f"The step would take {words.step(row)}; {words.estimate(ran)} was measured.")
        if {"global_batch", "seq_len"} & set(row.get("changes") or {}):
            yield from desk.more(
                "The step holds another number of tokens, so compare the time per token, not the step."
            )
    yield from desk.bullets(list(_effects(row)))
    if _wide(row):
        yield from desk.say(
            "The range is so wide because that lies far from what was measured: take the direction from "
            "it, not the size."
        )


def _wide(row: Row) -> bool:
    low, high = row.get("speedup_low80"), row.get("speedup_high80")
    return bool(low and high and high > 3 * low)


def _effects(row: Row) -> Iterator[str]:
    """What changes most: communication per axis, memory, what lowers the confidence."""
    moved = sorted(row.get("communication") or (), key=lambda item: -abs(item["after_s"] - item["before_s"]))
    for item in moved[:2]:
        if abs(item["after_s"] - item["before_s"]) < 1e-9:
            continue
        axes = (
            f" on the {' and '.join(item['axes'])} {'axis' if len(item['axes']) == 1 else 'axes'}"
            if item.get("axes")
            else ""
        )
        before, after = (words.time(item[key]) if item[key] > 0 else "none" for key in ("before_s", "after_s"))
        yield f"exposed communication of {item['moves']}{axes} goes from {before} to {after} a step"
    if row.get("hbm_per_chip_bytes"):
        ran = (row.get("what_runs") or {}).get("hbm_per_chip_bytes")
        was = f" (memory of what runs: {words.size(ran['total'])})" if ran and ran.get("total") else ""
        yield f"memory per chip, computed: {words.memory(row)}{was}"
    elif row.get("not_known"):
        yield f"whether it fits in memory is open, because {words.not_known(row['not_known'])}"
    doubts = words.open_questions(row)
    for text in [text for text in row.get("lowers_confidence") or () if text not in doubts][:2]:
        yield f"against it: {words.lower_first(str(text))}"


def _on_the_first(desk: Desk, asked: Asked, on_ran: Row) -> Answer:
    """The same change on the mesh that is recommended, since one may not exclude the other."""
    board = yield from common.board(desk)
    if board.error or board.first.get("keeps_the_mesh"):
        return
    first = board.first
    both = {
        "ici": first["mesh"]["ici"],
        "dcn": first["mesh"].get("dcn") or None,
        "changes": {**first.get("changes", {}), **asked.changes},
    }
    row = yield from common.predicted(desk, both)
    if isinstance(row, str):
        return
    if row.get("violations"):
        yield from desk.say(
            f"On the mesh of proposal {first['number']}, {words.mesh(row)}, it can not run: "
            f"{words.lower_first(words.violations(row)[0])}"
        )
        return
    yield from desk.say(
        f"On the mesh of proposal {first['number']}, {words.mesh(row)}, the same change is predicted at "
        f"{words.speed(row)}; proposal {first['number']} alone at "
        f"{words.ratio(first['speedup_per_token'])}."
    )
    yield from common.offered(row)


def _unknown_before(desk: Desk, asked: Asked, meant: common.Meant, unknown: tuple[str, ...]) -> Answer:
    """A setting would change that nobody knows now: whether it may run can be told, a gain can not."""
    found = yield from desk.look("legality", **meant.configurations[0])
    names = [common.FACTS[f"training.{key}"] for key in unknown]
    if found and found.data.get("violations"):
        yield from desk.say(f"It can not run: {words.violations(found.data)[0]}")
    elif found:
        yield from desk.say("Nothing that is known forbids it.")
    elif found.error:
        yield from desk.say(found.error)
    yield from desk.say(
        f"A gain I can not tell, and will not guess: {words.listed(names)} of what ran is not known, so "
        f"nobody knows what it would change from."
    )
    yield from common.ask_back(desk, common.decisive([f"training.{key}" for key in unknown], desk))


def _ways(desk: Desk, meant: common.Meant, asked: Asked) -> Answer:
    """Several meshes that the words may mean, side by side."""
    rows: list[Row] = []
    for item in meant.configurations:
        found = yield from common.predicted(desk, item)
        if isinstance(found, str):
            yield from desk.say(found)
            return
        rows.append(found)
    yield from _table(desk, rows, rows[0].get("what_runs") or {})
    fit = [row for row in rows if not row.get("violations") and row.get("speedup_per_token")]
    if fit:
        best = max(fit, key=lambda row: row["speedup_per_token"])
        word = "The best of them that may run" if len(fit) > 1 else "Only one of them breaks no rule"
        yield from desk.say(
            (
                f"{word}: {words.mesh(best)}, predicted at {words.speed(best)}, confidence "
                f"{words.percent(best['confidence_share'])}."
            ),
            *words.open_questions(best),
        )
        yield from common.offered(best)
    else:
        yield from desk.say(
            f"None of them may run: {words.violations(rows[0])[0]}"
            if words.violations(rows[0])
            else "None of them can be priced."
        )
    if len(fit) > 1:
        options = tuple(words.mesh(row).strip("`") for row in rows)
        question = Question("Which of them do you mean?", options)
        yield from desk.more(question.text)
        yield question


def _table(desk: Desk, rows: list[Row], ran: Row, names: list[str] | None = None) -> Answer:
    memory = any(row.get("hbm_per_chip_bytes") for row in rows)
    header = [
        "Configuration",
        "Step, predicted",
        "Per token",
        "Range",
        "Confidence",
        *(["Memory per chip"] if memory else []),
        "May run",
    ]
    lines = []
    for at, row in enumerate(rows):
        name = names[at] if names else words.configuration(row)
        if row.get("stands_as_proposal") and not names:
            name += f" (proposal {row['stands_as_proposal']})"
        speedup = row.get("speedup_per_token")
        known = speedup and not any(item["rule"] == "chips" for item in row.get("violations", ()))
        lines.append(
            [
                name,
                words.estimate(row) if known else "–",
                words.ratio(speedup) if known else "–",
                words.span(row) if known else "–",
                words.percent(row["confidence_share"]) if known and not row.get("violations") else "–",
                *([words.memory(row)] if memory else []),
                words.allowed(row),
            ]
        )
    if ran.get("step_time_s"):
        lines.append(
            [
                f"what runs, {words.mesh(ran)}",
                f"{words.estimate(ran)} measured",
                "1",
                "–",
                "–",
                *([words.memory(ran)] if memory else []),
                "yes",
            ]
        )
    yield from desk.table(header, lines)


def why_not(desk: Desk, asked: Asked) -> Answer:
    if asked.proposals and not asked.mesh:
        yield from desk.say("Nothing forbids it; the question is what it is set against.")
        from proposals.agents.reasoner.answers.standing import prefer

        yield from prefer(desk, asked)
        return
    if not asked.mesh and not asked.changes and desk.focus.mesh is None and not desk.focus.changes:
        yield from rejected_hint(desk)
        return
    meant = yield from common.configurations(desk, asked)
    if meant.problem:
        yield from desk.say(f"{meant.problem} So there is nothing to price.")
        yield from _which_axes(desk)
        return
    ways = [words.mesh_of({"ici": item["ici"], "dcn": item["dcn"] or {}}) for item in meant.configurations]
    changed = words.changes({"changes": meant.configurations[0]["changes"]})
    yield from desk.say(
        f"I check {words.listed(ways, 'or')}{f' with {changed}' if changed else ''} against the rules, the "
        f"memory and the time."
    )
    if unknown := settings.unknown_before(asked.changes, desk.bench.config.training):
        yield from _unknown_before(desk, asked, meant, unknown)
        return
    board = yield from common.board(desk)
    if board.error:
        yield from desk.say(board.error)
        return
    rows: list[Row] = []
    for item in meant.configurations:
        row = yield from common.predicted(desk, item)
        if isinstance(row, str):
            yield from desk.say(row)
            return
        rows.append(row)
    first = board.first
    for other in board.rows:
        like = [row for row in rows if same_mesh(row["mesh"], other["mesh"]) and not row.get("stands_as_proposal")]
        if like and other.get("changes") and not other.get("keeps_the_mesh"):
            yield from desk.say(
                f"That mesh is proposed, with other settings: proposal {other['number']} is "
                f"{words.configuration(other)}, predicted at {words.speed(other)}."
            )
    stands = [row for row in rows if row.get("stands_as_proposal")]
    if stands:
        row = stands[0]
        yield from desk.say(
            f"It is proposed: {words.configuration(row)} stands as proposal {row['stands_as_proposal']}, "
            f"predicted at {words.speed(row)}."
        )
    if len(rows) > 1:
        yield from _table(desk, rows, board.ran)
    fit = [row for row in rows if not row.get("violations")]
    for row in [row for row in rows if row.get("violations")][:2]:
        yield from desk.say(f"{words.configuration(row)} can not run: {words.lower_first(words.violations(row)[0])}")
    if any(item["rule"] == "memory" for row in rows for item in row.get("violations", ())) or (
        fit and fit[0].get("hbm_per_chip_bytes")
    ):
        yield from _memory_parts(
            desk,
            next((row for row in rows if row.get("hbm_per_chip_bytes") and row.get("violations")), (fit or rows)[0]),
        )
    runs = [row for row in fit if row.get("speedup_per_token") is not None]
    if not runs:
        if not fit and rows:
            yield from _what_would_allow(desk, rows[0])
        return
    best = max(runs, key=lambda row: row["speedup_per_token"])
    if best.get("stands_as_proposal") == first["number"]:
        yield from desk.say("It is what I recommend first.")
        return
    name, own = words.configuration(best), f"proposal {first['number']}"
    ran_ici = (board.ran.get("mesh") or {}).get("ici")
    if best["mesh"]["ici"] == ran_ici and not best.get("changes"):
        yield from desk.say(f"{name} is what runs; the proposals are what is predicted to be faster than it.")
        return
    found = verdict.case(first, best)
    yield from desk.say(*verdict.argued(name, best, own, first))
    if found in ("better", "bolder"):
        word = (
            "That is a fair objection: by these numbers it belongs among the candidates."
            if found == "better"
            else "So it is left out for the odds, not for the speed."
        )
        yield from desk.say(word)
    elif found == "slower":
        yield from desk.say(
            "It is legal, so the reason is time:"
            if best["speedup_per_token"] < 1
            else "It is legal and was weighed; the reason is time:",
            *_slower_by(best, first),
        )
        yield from desk.say(verdict.turns(name, best, own, first))
    yield from common.offered(best)


def _slower_by(row: Row, first: Row) -> Iterator[str]:
    """The parts of communication in which a configuration pays, then what it has against it."""
    moved = sorted(row.get("communication") or (), key=lambda item: item["before_s"] - item["after_s"])
    if moved and moved[0]["after_s"] > moved[0]["before_s"]:
        item = moved[0]
        before = words.time(item["before_s"]) if item["before_s"] > 0 else "none"
        yield f"exposed communication of {item['moves']} grows from {before} to {words.time(item['after_s'])} a step."
    else:
        yield f"what it saves is less than what proposal {first['number']} saves."
    for text in (row.get("trade_offs") or ())[:1]:
        yield str(text)


def _what_would_allow(desk: Desk, row: Row) -> Answer:
    rule = row["violations"][0]["rule"]
    if rule.startswith("your constraint"):
        yield from desk.say("It is your own constraint that forbids it; tell me to forget it, and I price the mesh.")
    elif rule.endswith("_unknown"):
        yield from common.ask_back(
            desk,
            common.decisive(row.get("not_known", ()), desk),
            "It is not known to be illegal, only not known to be legal.",
        )
    elif rule == "batch":
        yield from desk.say("Another global batch would allow it; name one and I price both together.")
    elif rule == "memory":
        yield from desk.say(
            "More rematerialisation, more micro-batches or a larger model axis would make room; name one "
            "and I price it."
        )


def _memory_parts(desk: Desk, row: Row) -> Answer:
    """Memory per chip by parts, computed, beside what runs."""
    held = row.get("hbm_per_chip_bytes")
    if not held or held.get("total") is None:
        if row.get("not_known"):
            yield from desk.say(f"Memory per chip can not be computed: not known: {words.missing(row['not_known'])}.")
        return
    ran = (row.get("what_runs") or {}).get("hbm_per_chip_bytes")
    header = ["Per chip, computed", f"Memory, {words.configuration(row)}", *(["Memory, what runs"] if ran else [])]
    parts = ("params", "optimizer", "gradients", "activations", "total", "capacity")
    names = {"params": "weights", "total": "**total**", "capacity": "a program can fill"}
    yield from desk.table(
        header,
        [
            [names.get(part, part), words.size(held[part]), *([words.size(ran[part])] if ran else [])]
            for part in parts
            if part in held
        ],
    )
    if ran and ran["total"] > ran["capacity"]:
        yield from desk.say(
            "By the same computation what runs would not fit either, and it ran: so the model errs here, "
            "or the configuration is not that of the profile."
        )


def rejected_hint(desk: Desk) -> Answer:
    yield from desk.say(
        "Why not which one? Name a mesh, one axis with a size, a setting or a proposal, and I check it "
        "against rules, memory and time."
    )


def compare(desk: Desk, asked: Asked) -> Answer:
    config = desk.bench.config
    items: list[dict[str, Any]] = []
    names: list[str] = []
    if asked.meshes:
        for mesh in asked.meshes:
            solved = solve(mesh, config.mesh.to_json(), config.hardware.chips_per_slice, config.mesh)
            if solved.problem:
                yield from desk.say(solved.problem)
                yield from _which_axes(desk)
                return
            items.append(
                {
                    "ici": solved.meshes[0]["ici"],
                    "dcn": solved.meshes[0].get("dcn") or None,
                    "changes": dict(asked.changes),
                }
            )
            names.append(words.mesh_of(solved.meshes[0]))
    elif asked.mesh or asked.changes:
        plain = Asked("what_if", asked.text, mesh=asked.mesh, changes=asked.changes, also=asked.also)
        meant = yield from common.configurations(desk, plain)
        if meant.problem:
            yield from desk.say(meant.problem)
            yield from _which_axes(desk)
            return
        items.append(meant.configurations[0])
        names.append(
            words.mesh_of({"ici": meant.configurations[0]["ici"], "dcn": meant.configurations[0]["dcn"] or {}})
        )
    elif asked.points_back and (desk.focus.mesh is not None or desk.focus.changes):
        meant = yield from common.configurations(desk, asked)
        items += meant.configurations[:1]
        names += [words.mesh_of({"ici": i["ici"], "dcn": i["dcn"] or {}}) for i in meant.configurations[:1]]
    yield from desk.say(
        f"Setting {words.listed(names)} side by side."
        if len(names) > 1
        else f"Setting {names[0]} beside it."
        if names
        else "Setting them side by side."
    )
    board = yield from common.board(desk)
    if board.error:
        yield from desk.say(board.error)
        return
    wanted = list(asked.proposals.numbers)
    if asked.proposals.every or (not wanted and not items) or asked.proposals.others:
        wanted += [row["number"] for row in board.rows if row["number"] not in wanted]
    if not wanted and len(items) == 1:
        wanted = [board.first["number"]]
    if len(wanted) == 1 and not items and not asked.proposals.every:
        wanted = list(dict.fromkeys((board.first["number"], *wanted)))
    labels = []
    for number in wanted:
        row = board.number(number)
        if row is None:
            have = words.listed([str(each["number"]) for each in board.rows])
            yield from desk.say(f"There is no proposal {number}; there are {have}.")
            continue
        items.append(common.as_arguments(row))
    del labels
    if len(items) < 2:
        if items:
            row = yield from common.predicted(desk, items[0])
            yield from (desk.say(row) if isinstance(row, str) else _priced(desk, row))
        return
    found = yield from common.side_by_side(desk, items[:6])
    if isinstance(found, str):
        yield from desk.say(found)
        return
    rows = found["configurations"]
    yield from _table(desk, rows, found["what_runs"])
    yield from _conclusion(desk, rows, found.get("fastest_that_may_run"))
    for row in rows:
        yield from common.offered(row)


def _name(row: Row) -> str:
    stands = row.get("stands_as_proposal")
    return f"proposal {stands}" if stands else words.configuration(row)


def _conclusion(desk: Desk, rows: list[Row], fastest: int | None) -> Answer:
    for row in rows:
        if row.get("violations"):
            yield from desk.say(
                f"{_name(row)[:1].upper()}{_name(row)[1:]} can not run: {words.lower_first(words.violations(row)[0])}"
            )
    if fastest is None:
        yield from desk.say("None of them may run, so there is no winner.")
        return
    best = rows[fastest - 1]
    others = [
        row for row in rows if row is not best and not row.get("violations") and row.get("time_per_token_over_fastest")
    ]
    if not others:
        yield from desk.say(f"That leaves {_name(best)}.")
        return
    behind = [
        f"{_name(row)} takes {words.ratio(row['time_per_token_over_fastest'])} its time per token" for row in others
    ]
    near = min(row["time_per_token_over_fastest"] for row in others)
    yield from desk.say(f"**Fastest by prediction: {_name(best)}**; {words.listed(behind)}.")
    surest = max((row for row in rows if not row.get("violations")), key=lambda row: row["confidence_share"])
    if surest is not best and surest["confidence_share"] > best["confidence_share"] + verdict.SURE:
        yield from desk.more(
            f"The surest to gain at all is {_name(surest)}, with a confidence of "
            f"{words.percent(surest['confidence_share'])}."
        )
    if near < 1 + words.SAME:
        yield from desk.more(
            "The first two are nearer than anyone would measure: choose by risk and by what is easier to run."
        )
    elif any((row.get("speedup_high80") or 0) > (best.get("speedup_low80") or 0) for row in others):
        yield from desk.more("Their ranges overlap, so only a measurement settles it.")


def memory(desk: Desk, asked: Asked) -> Answer:
    """Does it fit, and what fills the chip."""
    if asked.supposed:
        yield from _suppose(desk, asked)
        return
    number = common.meant(desk, asked, default=0)
    if ((asked.mesh or asked.changes) and number is None) or (number is None and desk.focus.mesh is not None):
        meant = yield from common.configurations(desk, asked)
        if meant.problem:
            yield from desk.say(meant.problem)
            return
        yield from desk.say("I compute what it needs per chip.")
        for item in meant.configurations[:2]:
            row = yield from desk.look("legality", **item)
            if not row:
                yield from desk.say(row.error)
                return
            yield from _fits(desk, row.data, words.configuration(row.data))
        return
    if number:
        yield from desk.say(f"I compute what proposal {number} needs per chip.")
        one = yield from common.whole(desk, number)
        if isinstance(one, str):
            yield from desk.say(one)
            return
        found = yield from desk.look("legality", **common.as_arguments(one))
        yield from (_fits(desk, found.data, f"proposal {number}") if found else desk.say(found.error))
        return
    yield from _measured_memory(desk)
    board = yield from common.board(desk)
    if board.error:
        yield from desk.say(board.error)
        return
    rows = [row for row in board.rows if row.get("hbm_per_chip_bytes")]
    if not rows:
        unknown = board.data.get("not_known", ())
        yield from desk.say(f"What the proposals need can not be computed, because {words.not_known(unknown)}.")
        yield from common.ask_back(desk, common.decisive(unknown, desk))
        return
    lines = [
        [
            f"proposal {row['number']}, {words.configuration(row)}",
            words.memory(row),
            words.size(row["memory_headroom_bytes"]),
        ]
        for row in rows
    ]
    if board.ran.get("hbm_per_chip_bytes"):
        lines.append(["what runs", words.memory(board.ran), words.size(board.ran["memory_headroom_bytes"])])
    yield from desk.table(["Per chip, computed", "Memory needed", "Memory left free"], lines)
    tight = [row for row in rows if row["memory_headroom_bytes"] < 0.1 * row["hbm_per_chip_bytes"]["capacity"]]
    if tight:
        yield from desk.say(
            f"Proposal {tight[0]['number']} is close to the limit; compilers need buffers that no formula "
            f"knows, so check it first with an ahead-of-time compile (see the launch files)."
        )
    else:
        yield from desk.say("All of them fit with room to spare.")


def _measured_memory(desk: Desk) -> Answer:
    found = yield from desk.look("kpis")
    held = found.data.get("memory") or {}
    if held.get("peak_bytes") and held.get("capacity_bytes"):
        yield from desk.say(
            f"Measured in this run: a peak of {words.size(held['peak_bytes'])} of "
            f"{words.size(held['capacity_bytes'])} per chip."
        )
    else:
        yield from desk.say("The peak memory of this run was not measured: the profile holds no memory events.")


def _fits(desk: Desk, row: Row, name: str) -> Answer:
    fits = row.get("fits")
    if fits is None:
        yield from desk.say(
            f"Whether {name} fits can not be computed, because {words.not_known(row.get('not_known', ()))}."
        )
        yield from common.ask_back(desk, common.decisive(row.get("not_known", ()), desk))
        return
    room = row["memory_headroom_bytes"]
    if fits:
        yield from desk.say(
            f"**It fits**, by computation: {name} needs {words.memory(row)} per chip and leaves "
            f"{words.size(room)} free."
        )
    else:
        yield from desk.say(f"**It does not fit**, by computation: {name} needs {words.memory(row)} per chip.")
    others = [item for item in row.get("violations", ()) if item["rule"] != "memory"]
    if others:
        yield from desk.say(f"Memory aside, it can not run: {words.lower_first(others[0]['reason'])}")
    yield from _memory_parts(desk, row)


def _which_axes(desk: Desk) -> Answer:
    found = yield from desk.look("run")
    if found:
        yield from desk.say(
            f"The mesh that runs is {words.mesh(found.data)} on {found.data['chips']:,} chips; name its "
            f"axes with their sizes."
        )


def _suppose(desk: Desk, asked: Asked) -> Generator[Said, None, None]:
    """A fact that is only supposed: what the proposals would be under it."""
    config = desk.bench.config
    sentences = [fact_sentence(path, value, config) for path, value in asked.supposed.items()]
    yield from desk.say("Supposing it:", *sentences)
    before = yield from common.board(desk)
    held = desk.bench
    try:
        desk.over(held.with_facts({**dict(held.facts), **dict(asked.supposed)}))
    except ConfigError as error:
        yield from desk.say(f"That does not fit this run: {error}")
        return
    after = yield from common.board(desk)
    if after.error:
        yield from desk.say(f"Then nothing can be proposed: {after.error}")
    else:
        from proposals.agents.reasoner.answers.retelling import changed

        yield from changed(desk, before, after, "under that")
        options = tuple(text.rstrip(".") for text in sentences)
        question = Question("Shall I hold that as a fact of the run?", options)
        yield from desk.say(question.text)
        yield question
    desk.over(held)
