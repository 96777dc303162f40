"""The proposals: one explained, its risks, how to launch it, what else there was, what would change the order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proposals import facts
from proposals.agents.conversation import MeshOffered
from proposals.agents.reasoner import words
from proposals.agents.reasoner.answers import common, measured, verdict
from proposals.agents.reasoner.answers.standing import table
from proposals.agents.reasoner.desk import Answer, Desk
from proposals.agents.reasoner.understand import Asked

Row = Mapping[str, Any]
#: After these a bare `why?` would be answered with what was just said.
_SAID = {"explain", "why_slow"}
_BEHIND = "What stands behind it is what was measured."
_FILES = {"maxtext": "maxtext", "megatron": "megatron", "axlearn": "axlearn", "yaml": "yaml", "jax": "jax"}


def explain(desk: Desk, asked: Asked) -> Answer:
    number = common.meant(desk, asked)
    if asked.proposals.others or asked.proposals.every or (asked.proposals.kind and number is None):
        yield from overview(desk, asked)
        return
    if not asked.proposals and desk.focus.intent in _SAID:
        if any(turn.text.startswith(_BEHIND) for turn in desk.ask.earlier[-1:]):
            yield from desk.say("That is as far as the profile tells; ask about an op, an axis or a figure of it.")
            return
        yield from desk.say(_BEHIND)
        yield from (measured.ops if desk.focus.intent == "why_slow" else measured.why_slow)(desk, asked)
        return
    if number is None:
        yield from _priced(desk, asked)
        return
    if asked.proposals.kind and not asked.proposals.numbers:
        board = yield from common.board(desk)
        number = common.by_kind(board.rows, asked.proposals.kind) or number
    yield from desk.say(f"Proposal {number}, and what it stands on.")
    row = yield from common.whole(desk, number)
    if isinstance(row, str):
        yield from desk.say(row)
        return
    yield from desk.say(
        f"{words.title(row)}: predicted {words.speed(row)}, confidence {words.sure(row)}."
        if row.get("speedup_per_token")
        else f"{words.title(row)}."
    )
    if row.get("status", "proposed") != "proposed":
        yield from desk.more(f"It is {row['status']}, by a person.")
    yield from desk.bullets([str(item) for item in row.get("reasons", ())])
    yield from _communication(desk, row)
    proof = yield from common.evidence(desk, row)
    yield from desk.say(*proof)
    if row.get("trade_offs"):
        yield from desk.say("What it costs:", *[str(item) for item in row["trade_offs"][:2]])
    cited = [
        f"`{item['key']}`" for item in row.get("citations", ()) if item.get("key") and item.get("source") != "history"
    ]
    if cited:
        yield from desk.say(
            f"It rests on {'passage' if len(cited) == 1 else 'passages'} {words.listed(cited[:3])} of the "
            f"knowledge base."
        )


def _priced(desk: Desk, asked: Asked) -> Answer:
    """Why a configuration that was priced is predicted as it is."""
    meant = yield from common.configurations(desk, asked)
    if meant.problem:
        yield from desk.say(meant.problem)
        return
    row = yield from common.predicted(desk, meant.configurations[0])
    if isinstance(row, str):
        yield from desk.say(row)
        return
    name = words.configuration(row)
    if row.get("violations"):
        yield from desk.say(f"{name} can not run:", *words.violations(row))
        return
    yield from desk.say(
        f"{name} is predicted at {words.speed(row)}, confidence {words.sure(row)}; what that comes from:"
        if row.get("speedup_per_token")
        else f"What is known of {name}:"
    )
    yield from desk.bullets([str(item) for item in row.get("reasons", ())])
    yield from _communication(desk, row)
    if row.get("trade_offs"):
        yield from desk.say("What it costs:", *[str(item) for item in row["trade_offs"][:2]])
    if row.get("lowers_confidence"):
        yield from desk.say("What lowers the confidence:", *[str(item) for item in row["lowers_confidence"][:2]])


def _communication(desk: Desk, row: Row) -> Answer:
    if not row.get("communication"):
        return
    lines = []
    for item in row["communication"]:
        axes = f" ({' and '.join(item['axes'])})" if item.get("axes") else ""
        lines.append([f"{item['moves']}{axes}", words.traffic(item, "before"), words.traffic(item, "after")])
    timed = "before_s" in row["communication"][0]
    head = "Exposed communication per step" if timed else "Exposed communication"
    yield from desk.table([head, "Before", "After, predicted"], lines)


def risks(desk: Desk, asked: Asked) -> Answer:
    number = common.meant(desk, asked)
    if asked.proposals.kind and not asked.proposals.numbers:
        board = yield from common.board(desk)
        number = common.by_kind(board.rows, asked.proposals.kind) or number
    if number is None:
        meant = yield from common.configurations(desk, asked)
        if meant.problem:
            yield from desk.say(meant.problem)
            return
        yield from desk.say("I price it, to see what could go wrong.")
        row = yield from common.predicted(desk, meant.configurations[0])
    else:
        yield from desk.say(f"What could go wrong with proposal {number}:")
        row = yield from common.whole(desk, number)
    if isinstance(row, str):
        yield from desk.say(row)
        return
    if row.get("violations"):
        yield from desk.say("It can not run:", *words.violations(row))
        return
    items = []
    low = row.get("speedup_low80")
    if low and low < 1 - words.SAME:
        items.append(
            f"**It may lose time**: the range of the prediction reaches down to {words.ratio(low)} per "
            f"token, and the confidence that it {words.gains(row)} is {words.percent(row['confidence_share'])}."
        )
    elif low:
        items.append(f"A loss is unlikely: even the low end of the range is {words.ratio(low)} per token.")
    held, room = row.get("hbm_per_chip_bytes"), row.get("memory_headroom_bytes")
    if held and room is not None:
        tight = room < 0.1 * held["capacity"]
        items.append(
            f"Memory is {'tight' if tight else 'no risk'}: computed {words.memory(row)} per chip, which "
            f"leaves {words.size(room)}."
            if room >= 0
            else f"**It does not fit in memory**, by computation: {words.memory(row)} per chip."
        )
    elif row.get("not_known"):
        items.append(
            "**It may run out of memory, or not**: what it needs per chip can not be computed while facts are missing."
        )
    items += [str(item) for item in row.get("trade_offs", ())]
    items += [str(item) for item in row.get("lowers_confidence", ()) if "memory" not in str(item).lower() or not held]
    yield from desk.bullets(items)
    found = yield from desk.look("similar_runs", proposal=number, top=5) if number else _nothing()
    bad = (
        [
            r
            for r in (found.data.get("records") or [])
            if r["outcome"] in ("failed", "slower") and any("moved the same way" in str(w) for w in r.get("why", ()))
        ]
        if found
        else []
    )
    if bad:
        r = bad[0]
        yield from desk.say(
            f"A like move went badly once: record `{r['id']}`, "
            f"{words.lower_first(str(r['effect']).rstrip('.'))} ({words.lower_first(str(r['title']))})."
        )
    yield from desk.say(
        "Cheapest guard: compile it ahead of time first, which tells the memory without a chip, then run a "
        "few dozen steps against the present mesh before the whole job."
    )


def _nothing() -> Any:
    from proposals.agents.reasoner.desk import Result

    return Result()
    yield


def launch(desk: Desk, asked: Asked) -> Answer:
    kind = next((value for key, value in _FILES.items() if key in asked.text), "maxtext")
    number = common.meant(desk, asked)
    if number is None:
        meant = yield from common.configurations(desk, asked)
        if meant.problem:
            yield from desk.say(meant.problem)
            return
        target: dict[str, Any] = {"configuration": {k: v for k, v in meant.configurations[0].items() if v is not None}}
        yield from desk.say("I write the launch file as text; nothing is started.")
    else:
        target = {"number": number}
        yield from desk.say(f"The launch file of proposal {number}, as text; nothing is started.")
    every = yield from desk.look("launch_files", **target)
    if not every:
        yield from desk.say(every.error)
        return
    if not every.data.get("may_run", True):
        yield from desk.say("It can not run as it is:", *words.violations(every.data))
    names = [item["kind"] for item in every.data["files"]]
    kind = kind if kind in names else names[0]
    found = yield from desk.look("launch_files", **target, kind=kind)
    file = found.data["files"][0] if found else every.data["files"][0]
    yield from desk.say(f"`{file['name']}`:\n\n```\n{str(file['text']).strip()}\n```")
    yield from desk.bullets([str(note) for note in file.get("notes", ())])
    rest = [f"`{item['name']}`" for item in every.data["files"] if item["name"] != file["name"]]
    if rest:
        yield from desk.say(
            f"There are also {words.listed(rest)}; all of them can be downloaded on the proposal's page."
        )


def overview(desk: Desk, asked: Asked) -> Answer:
    yield from desk.say("The proposals as they stand:")
    board = yield from common.board(desk)
    if board.error:
        yield from desk.say(board.error)
        return
    yield from table(desk, list(board.rows))
    yield from desk.bullets(
        [f"Proposal {row['number']}: {words.lower_first(str(row['title']))}." for row in board.rows]
    )
    yield from desk.say(
        f"They were chosen out of {board.data['candidates_priced']:,} candidates on "
        f"{board.data['meshes_considered']:,} meshes that were considered."
    )


def rejected(desk: Desk, asked: Asked) -> Answer:
    yield from desk.say("What was left out, nearest to what ran first:")
    found = yield from desk.look("rejected", top=6)
    if not found:
        yield from desk.say(found.error)
        return
    rows = found.data["rows"]
    if not rows:
        yield from desk.say("No mesh was rejected.")
        return
    yield from desk.table(
        ["Mesh", "Rule", "Why"], [[words.mesh(row), words.rule(row["rule"]), str(row["reason"])] for row in rows]
    )
    counts = [f"{words.rule(rule)} {count}" for rule, count in found.data["count_by_rule"].items()]
    yield from desk.say(
        f"Of {found.data['meshes_considered']:,} meshes considered, by the first rule each broke: "
        f"{words.listed(counts)}."
    )


def search(desk: Desk, asked: Asked) -> Answer:
    yield from desk.say("The best of all legal candidates, every mesh with every further change, as they are ranked:")
    found = yield from desk.look("search", top=6)
    if not found:
        yield from desk.say(found.error)
        return
    rows = [row for row in found.data["candidates"] if row.get("speedup_per_token")]
    lines = []
    for row in rows:
        name = words.configuration(row) + (
            f" (proposal {row['stands_as_proposal']})"
            if row.get("stands_as_proposal")
            else " (what runs)"
            if row.get("is_what_runs")
            else ""
        )
        runs = row.get("is_what_runs")
        lines.append(
            [
                name,
                words.ratio(row["speedup_per_token"]),
                "–" if runs else words.span(row),
                "–" if runs else words.percent(row["confidence_share"]),
            ]
        )
    yield from desk.table(["Configuration", "Per token, predicted", "Range", words.confidence_head(rows)], lines)
    new = [row for row in rows if not row.get("stands_as_proposal") and not row.get("is_what_runs")]
    if new:
        yield from desk.say(
            "Those that are no proposal stand near one that is, or gain less; the three are kept apart on "
            "purpose, so that a trial teaches something."
        )
        best = max(new, key=lambda row: row["speedup_per_token"])
        yield MeshOffered(best["mesh"], best.get("changes", {}), words.configuration(best).replace("`", ""))


def change_mind(desk: Desk, asked: Asked) -> Answer:
    yield from desk.say("Numbers would; these are the ones that decide.")
    board = yield from common.board(desk)
    if board.error:
        yield from desk.say(board.error)
        return
    first = board.first
    own = f"proposal {first['number']}"
    items = []
    ran, time = board.ran.get("step_time_s"), first.get("step_time_s")
    if first["kind"] != "keep" and ran and isinstance(time, Mapping):
        low = (
            f"; the range of {own} reaches {words.time(time['high80'])}, so that can happen"
            if time["high80"] > ran
            else ""
        )
        items.append(
            f"**Its measurement**: if {own} runs at {words.time(ran)} a step or more, it gains nothing "
            f"over what runs, and I drop it{low}."
        )
    for row in board.rows[1:3]:
        if text := verdict.turns(f"proposal {row['number']}", row, own, first):
            items.append(text)
    unknown = board.data.get("not_known", ())
    if unknown:
        items.append(
            f"**A missing fact**: {facts.in_words(unknown)}. With {'it' if len(unknown) == 1 else 'them'} the "
            f"terms are computed and not scaled, "
            f"and rules that are open now (heads, memory, divisibility) are checked."
        )
    held, room = first.get("hbm_per_chip_bytes"), first.get("memory_headroom_bytes")
    if held and room is not None:
        items.append(
            f"**Memory**: it needs {words.memory(first)} per chip by computation; if your chips leave a "
            f"program less than that, it is out."
        )
    else:
        items.append(
            "**Memory**: if a profile with memory events showed that the chips are nearly full, what makes "
            "shards larger would be out."
        )
    found = yield from desk.look("sensitivity", number=first["number"])
    steps = (
        [s for s in found.data.get("one_step_away", ()) if s.get("speedup_over_this") and not s.get("rule")]
        if found
        else []
    )
    if steps:
        best = max(steps, key=lambda s: s["speedup_over_this"])
        if best["speedup_over_this"] > 1 + words.SAME:
            items.append(
                f"**The next step**: {words.stepped(best)} is predicted {words.ratio(best['speedup_over_this'])} "
                f"the speed of {own}; if the first step is measured to gain, I would go there."
            )
        else:
            items.append(
                f"**Its neighbours**: the best that may run, {words.stepped(best)}, is predicted "
                f"{words.ratio(best['speedup_over_this'])} the speed of {own}; it would have to beat that."
            )
    yield from desk.bullets(items)
    yield from desk.say("What does not: being told so. Without a fact, a constraint or a measurement the order stays.")


def measure(desk: Desk, asked: Asked) -> Answer:
    yield from desk.say("In the order of what each would settle:")
    board = yield from common.board(desk)
    kpis = yield from desk.look("kpis")
    items = []
    unknown = board.data.get("not_known", ()) if not board.error else ()
    if unknown:
        items.append(
            f"**Tell me {facts.in_words(unknown)}**: costs nothing, and turns scaled terms into computed ones."
        )
    if kpis.data.get("profile"):
        items.append(
            "**A profile of the run as it is**: it shows where the step goes, which is only predicted now, and "
            "calibrates each part by itself."
        )
    first = board.rows[0] if board.rows else None
    ran = board.ran.get("step_time_s") if first else None
    if first and first["kind"] != "keep" and ran and isinstance(first.get("step_time_s"), Mapping):
        items.append(
            f"**A short run of proposal {first['number']}** with a profile: predicted {words.step(first)} "
            f"a step against {words.time(ran)} measured now. Below that it gains; upload the profile on its "
            f"card, and the confidence of all further proposals moves by it."
        )
        rival = next((row for row in board.rows[1:] if verdict.case(first, row) in ("better", "bolder", "tie")), None)
        if rival:
            items.append(
                f"**Proposal {rival['number']} beside it**: the two are near enough that only a measurement parts them."
            )
    elif first:
        items.append(f"**A short run of proposal {first['number']}**, so that there is a measured pair to learn from.")
    for key, text in (kpis.data.get("not_measured") or {}).items():
        if key in ("memory", "memory_peak_share") and not any("memory profile" in item for item in items):
            items.append(
                "**A memory profile**: the peak per chip was not measured, and it decides whether less "
                "recomputation or larger shards have room."
            )
        elif key == "step_time_s":
            items.append(f"**More steps**: {text}")
    compared = kpis.data.get("step_time_stdev_s")
    if compared is not None and kpis.data.get("step_time_s") and compared > 0.05 * kpis.data["step_time_s"]:
        items.append(
            f"**The same mesh again**: steps vary by {words.time(compared)} (standard deviation), which "
            f"would hide a small gain."
        )
    yield from desk.bullets(items)
    yield from common.ask_back(desk, common.decisive(unknown, desk))
