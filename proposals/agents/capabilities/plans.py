"""The proposals: which first, how sure, against each other, what would change the order, what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from agent.tools import Arguments, NoArguments, ToolError
from proposals import facts
from proposals.agents import words
from proposals.agents.capabilities import verdict
from proposals.agents.capabilities.capability import capability
from proposals.agents.capabilities.common import (
    About,
    Configured,
    MeshText,
    Numbers,
    Row,
    as_arguments,
    board,
    get,
    how,
    meant,
    name_of,
    offers,
    priced_table,
    unknown_facts,
    whole,
)
from proposals.agents.capabilities.desk import Answer, Desk


@capability(
    "Recommendation",
    "Which proposal do you recommend I start with?",
    "What should I try first?",
    "Of these proposals, which is the best?",
    "What would you do?",
    "Which mesh should we begin with?",
)
def recommend(desk: Desk, given: NoArguments) -> Answer:
    """Which proposal to try first, with its predicted gain, confidence, reasons, evidence and trade-off."""
    found = yield from get(desk, "bottleneck")
    if found.get("primary") != "unknown":
        yield from desk.say(
            f"The bottleneck is {found['primary']} ({words.percent(found['confidence_share'])} confidence)."
        )
    rows, ran, data = yield from board(desk)
    first, others = rows[0], rows[1:]
    if first["kind"] == "keep":
        yield from desk.say(f"**Keep the current configuration**, {words.mesh(first)}. {' '.join(first['reasons'][1:3])}")
    else:
        time = f" a step of {words.step(first)} against {words.estimate(ran)} {how(desk)}," if isinstance(first.get("step_time_s"), Mapping) else ""
        yield from desk.say(
            f"Start with {words.title(first)}: predicted{time} {words.speed(first)}, with "
            f"{words.percent(first['confidence_share'])} confidence that it {words.gains(first)}.{words.inconclusive(first)}"
        )
        yield from desk.bullets([str(reason) for reason in first["reasons"][1:4] if not str(reason).startswith("Precedent")])
    yield from _proof(desk, first)
    if others:
        yield from priced_table(desk, rows, ran, "Proposal", [f"{r['number']}, {words.configuration(r)}" for r in rows])
    if first.get("trade_offs"):
        yield from desk.say("Trade-off:", str(first["trade_offs"][0]))
    yield from unknown_facts(desk, data.get("not_known", ()))


def _proof(desk: Desk, row: Row) -> Answer:
    """Whether a measured run stands behind a proposal."""
    keys = [item["key"] for item in row.get("citations", ()) if item.get("source") == "history" and item.get("key")]
    for key in keys:
        found = yield from desk.look("record", id=key)
        if found and found.data.get("outcome") == "faster":
            where = f" on {found.data['chip']}" if found.data.get("chip") else ""
            yield from desk.say(f"**Proven elsewhere**: record `{key}`{where}, {words.lower_first(str(found.data['effect']).rstrip('.'))}.")
            return
    if row.get("kind") != "keep" and (row.get("changes") or not row.get("keeps_the_mesh")):
        yield from desk.say(
            "**No precedent**: no record of a similar measured change is near enough to count as evidence; the confidence is "
            "the calibrated model's alone."
        )


@capability(
    "The proposals",
    "Show me the proposals.",
    "List all options with their predicted speedups.",
    "What configurations do you suggest?",
)
def proposals(desk: Desk, given: NoArguments) -> Answer:
    """The proposals as they stand: configuration, predicted time, interval, confidence, memory, status."""
    rows, ran, data = yield from board(desk)
    yield from priced_table(desk, rows, ran, "Proposal", [f"{r['number']}, {words.configuration(r)}" for r in rows])
    yield from desk.bullets(
        [f"Proposal {row['number']}: {words.lower_first(str(row['title']))} ({row.get('status', 'proposed')})." for row in rows]
    )
    yield from desk.say(
        f"Chosen out of {data['candidates_priced']:,} candidates on {data['meshes_considered']:,} meshes considered."
    )


def _which(desk: Desk, given: About | Configured) -> int:
    return given.proposal or 1


@capability(
    "A proposal explained",
    "Explain this proposal.",
    "Why do you propose this?",
    "What are the reasons behind the first proposal?",
    "What does the proposal change and why should it be faster?",
)
def explain(desk: Desk, given: About) -> Answer:
    """One proposal: reasons, communication before and after, evidence, trade-offs, citations."""
    row = yield from whole(desk, _which(desk, given))
    yield from desk.say(
        f"{words.title(row)}: predicted {words.speed(row)}, confidence {words.sure(row)}." if row.get("speedup_per_token") else f"{words.title(row)}."
    )
    if row.get("status", "proposed") != "proposed":
        yield from desk.more(f"It is {row['status']}.")
    yield from desk.bullets([str(item) for item in row.get("reasons", ())])
    if row.get("communication"):
        lines = [
            [f"{item['moves']}{' (' + ' and '.join(item['axes']) + ')' if item.get('axes') else ''}",
             words.traffic(item, "before"), words.traffic(item, "after")]
            for item in row["communication"]
        ]  # fmt: skip
        yield from desk.table(["Exposed communication", "Now", "Predicted"], lines)
    yield from _proof(desk, row)
    if row.get("trade_offs"):
        yield from desk.say("Trade-offs:", *[str(item) for item in row["trade_offs"][:2]])
    cited = [f"`{c['key']}`" for c in row.get("citations", ()) if c.get("key") and c.get("source") != "history"]
    if cited:
        yield from desk.say(f"Sources in the knowledge base: {words.listed(cited[:3])}.")


class Sides(Arguments):
    proposals: Numbers = ()
    meshes: Annotated[tuple[str, ...], Field(max_length=4, description="Meshes such as fsdp=32, tp=8.")] = ()
    mesh: MeshText = ""


@capability(
    "Comparison",
    "Compare the proposals.",
    "Compare proposal 1 and 3.",
    "What is the difference between these two meshes?",
    "Which of these is faster, and which is safer?",
    "Which proposal needs the least memory?",
    "Set this mesh against the first proposal.",
)
def compare(desk: Desk, given: Sides) -> Answer:
    """Proposals and meshes side by side: time, interval, confidence, memory; fastest, most certain, least memory."""
    config = desk.bench.config
    items: list[dict[str, Any]] = []
    for text in (*given.meshes, *([given.mesh] if given.mesh else ())):
        found = yield from meant(desk, Configured(mesh=text))
        items.append(found[0])
    rows, ran, _ = yield from board(desk)
    by = {row["number"]: row for row in rows}
    absent = [n for n in given.proposals if n not in by]
    if absent:
        raise ToolError(f"There is no proposal {absent[0]}; the proposals are {words.listed([str(n) for n in by])}.")
    wanted = list(given.proposals) or ([] if len(items) > 1 else [1] if items else list(by))
    if len(wanted) + len(items) < 2:
        current = config.mesh.to_json()
        items.append({"ici": current["ici"], **({"dcn": current["dcn"]} if current["dcn"] else {}), "changes": {}})
    items = [*(as_arguments(by[n]) for n in wanted), *items][:6]
    found_ = yield from get(desk, "compare_meshes", configurations=items)
    sides = found_["configurations"]
    yield from priced_table(desk, sides, found_["what_runs"])
    for row in sides:
        if row.get("violations"):
            yield from desk.say(f"{_capital(name_of(row))} is not legal: {words.violations(row)[0]}")
    yield from _winners(desk, sides, found_.get("fastest_that_may_run"))
    yield from offers(sides)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _winners(desk: Desk, rows: Sequence[Row], fastest: int | None) -> Answer:
    """The fastest, the most certain to gain, the least memory."""
    legal = [row for row in rows if not row.get("violations")]
    if fastest is None or not legal:
        yield from desk.say("No configuration of these is legal and priced, so there is no fastest.")
        return
    best = rows[fastest - 1]
    items = [f"**Fastest by prediction: {name_of(best)}**, {words.ratio(best['speedup_per_token'])} per token"]
    gaining = [row for row in legal if not words.keeps(row) and "confidence_share" in row]
    if gaining:
        sure = max(gaining, key=lambda row: row["confidence_share"])
        items.append(f"most certain to gain: {name_of(sure)}, confidence {words.sure(sure)}")
    held = [row for row in legal if row.get("hbm_per_chip_bytes")]
    if held:
        least = min(held, key=lambda row: row["hbm_per_chip_bytes"]["total"])
        items.append(f"least memory per chip: {name_of(least)}, {words.memory(least)}")
    yield from desk.bullets(items)
    overlap = [r for r in legal if r is not best and (r.get("speedup_high80") or 0) > (best.get("speedup_low80") or 0)]
    if overlap:
        yield from desk.say("Their 80 % intervals overlap: a measurement decides.")


@capability(
    "Confidence",
    "How sure are you?",
    "How confident are you that it will be faster?",
    "The interval includes 1, is the gain real?",
    "How certain is this prediction, and what could make it wrong?",
    "What is the probability that this gains anything?",
)
def confidence(desk: Desk, given: Configured) -> Answer:
    """Calibrated probability that a proposal or configuration gains, its interval, and what raises and lowers it."""
    number = given.proposal or (None if given.named else 1)
    if given.named and given != Configured(proposal=given.proposal):
        found = yield from meant(desk, given)
        row = yield from get(desk, "predict", **found[0])
        name = words.configuration(row)
    else:
        row = yield from whole(desk, number or 1)
        name = f"proposal {number or 1}"
    if row.get("violations"):
        raise ToolError(f"{_capital(name)} is not legal, so there is no gain to be confident of: {words.violations(row)[0]}")
    value = row["confidence_share"]
    if words.keeps(row) or row.get("kind") == "keep":
        yield from desk.say(
            f"**{words.percent(value)}** is the probability that keeping the current configuration, {words.mesh(row)}, is "
            "right: no legal candidate gains what is worth a change."
        )
    else:
        yield from desk.say(f"**{words.percent(value)}** is the calibrated probability that {name} {words.gains(row)}.")
        if row.get("speedup_per_token"):
            low = row.get("speedup_low80") or 1.0
            tail = words.inconclusive(row) or (" The whole interval lies above the current configuration." if low > 1 else "")
            yield from desk.more(f"Predicted {words.speed(row)}.{tail}")
    for heading, key in (("Raises it:", "raises_confidence"), ("Lowers it:", "lowers_confidence")):
        if row.get(key):
            yield from desk.say(heading)
            yield from desk.bullets([str(item) for item in row[key]])
    yield from _proof(desk, row)
    yield from desk.say("It is calibrated on predicted against measured gains of published pairs of runs and of this team's trials.")
    yield from unknown_facts(desk, row.get("not_known", ()))


@capability(
    "Risks",
    "What could go wrong with this proposal?",
    "What are the risks and trade-offs?",
    "What is the downside of the recommendation?",
    "Is it safe to try this?",
)
def risks(desk: Desk, given: Configured) -> Answer:
    """What speaks against a proposal or configuration: low end of the interval, memory, trade-offs, failed precedents."""
    if given.named and given != Configured(proposal=given.proposal):
        found = yield from meant(desk, given)
        row = yield from get(desk, "predict", **found[0])
        name = words.configuration(row)
    else:
        number = given.proposal or 1
        row = yield from whole(desk, number)
        name = f"Proposal {number}"
    if row.get("violations"):
        raise ToolError(f"{name} is not legal: {words.violations(row)[0]}")
    items, low = [], row.get("speedup_low80")
    if low and low < 1 - words.SAME:
        items.append(
            f"**It may lose time**: the 80 % interval reaches down to {words.ratio(low)} per token; confidence that it "
            f"{words.gains(row)} {words.percent(row['confidence_share'])}"
        )
    elif low:
        items.append(f"a loss is unlikely: the low end of the 80 % interval is {words.ratio(low)} per token")
    held, room = row.get("hbm_per_chip_bytes"), row.get("memory_headroom_bytes")
    if held and room is not None:
        tight = "tight" if room < 0.1 * held["capacity"] else "no risk"
        items.append(f"memory is {tight}: {words.memory(row)} per chip computed, headroom {words.size(room)}")
    elif row.get("not_known"):
        items.append("memory per chip cannot be computed while facts are missing")
    items += [str(item) for item in (*row.get("trade_offs", ()), *row.get("lowers_confidence", ()))]
    yield from desk.say(f"{name}, {words.configuration(row)}:")
    yield from desk.bullets(items)
    if row.get("number"):
        found_ = yield from desk.look("similar_runs", proposal=row["number"], top=5)
        bad = [
            r for r in (found_.data.get("records") or [] if found_ else [])
            if r["outcome"] in ("failed", "slower") and any("moved the same way" in str(w) for w in r.get("why", ()))
        ]  # fmt: skip
        if bad:
            yield from desk.say(f"A similar change went badly: record `{bad[0]['id']}`, {words.lower_first(str(bad[0]['effect']).rstrip('.'))}.")
    yield from desk.say("Guard: compile it ahead of time, which tells the memory without a chip, then run a few dozen steps.")


class Preference(Configured):
    proposals: Numbers = ()


@capability(
    "Your preference against the recommendation",
    "The other two seem more promising to me.",
    "I would rather start with another proposal.",
    "I think my mesh is better than yours.",
    "I find proposals 2 and 3 more promising.",
    "Would it not be better to take the bolder option?",
)
def prefer(desk: Desk, given: Preference) -> Answer:
    """What the user favours against proposal 1 by the numbers: conceded, defended, and the number that would turn it."""
    rows, ran, _ = yield from board(desk)
    first = rows[0]
    own = f"proposal {first['number']}"
    wanted = given.proposals or ((given.proposal,) if given.proposal else ())
    items = []
    if given.mesh or not wanted and given.named:
        found = yield from meant(desk, Configured(**given.model_dump(exclude={"proposals"})))
        items = found[:1]
    absent = [n for n in wanted if all(row["number"] != n for row in rows)]
    if absent:
        raise ToolError(f"There is no proposal {absent[0]}; the proposals are {words.listed([str(r['number']) for r in rows])}.")
    if not items:
        items = [as_arguments(row) for row in rows[1:] if not wanted or row["number"] in wanted]
    if not items:
        yield from desk.say(f"That is {own}, which is recommended: predicted {words.speed(first)}.")
        return
    compared = yield from get(desk, "compare_meshes", configurations=[as_arguments(first), *items][:6])
    mine, *theirs = compared["configurations"]
    mine = {**mine, "kind": first["kind"], "number": first["number"]}
    yield from priced_table(desk, [mine, *theirs], compared["what_runs"])
    cases = [(verdict.case(mine, row), row) for row in theirs]
    for _, row in cases:
        yield from desk.say(*verdict.argued(name_of(row), row, own, mine, row.get("time_per_token_over_fastest")))
    better = [row for case, row in cases if case == "better"]
    bolder = [row for case, row in cases if case == "bolder"]
    if better:
        best = max(better, key=lambda row: row["speedup_per_token"])
        yield from desk.say(f"**Conceded**: by gain and by confidence {name_of(best)} is the better start.")
    elif bolder:
        best = max(bolder, key=lambda row: row["speedup_per_token"])
        yield from desk.say(
            f"**Half conceded**: for the larger gain take {name_of(best)}; as the first trial {own} stays, which is more certain."
        )
    else:
        turn = [verdict.turns(name_of(row), row, own, mine) for _, row in cases[:2]]
        yield from desk.say(f"**{_capital(own)} stays first.**", *turn)
    yield from offers(theirs)


@capability(
    "Whether the recommendation still stands",
    "Do you still stand by your recommendation?",
    "Are you sticking with proposal 1?",
    "You are wrong about the first proposal.",
    "If I add nothing more, is it still the same?",
)
def stand(desk: Desk, given: NoArguments) -> Answer:
    """Proposal 1 against the others and its neighbours once more, under all that the conversation holds."""
    rows, _, data = yield from board(desk)
    first, others = rows[0], rows[1:]
    own = f"proposal {first['number']}"
    told = data.get("told_by_the_user") or data.get("held_fast_by_the_user")
    better = [row for row in others if verdict.case(first, row) == "better"] if first["kind"] != "keep" else []
    if better:
        best = max(better, key=lambda row: row["speedup_per_token"])
        yield from desk.say(
            f"**Only as the cheaper one to try**: {words.title(first)} leads because the ranking also weighs what a change "
            f"costs to try; by gain and confidence {name_of(best)} is ahead."
        )
    else:
        why = "what was stated is counted in" if told else "no fact was added, so no number changed"
        yield from desk.say(f"**Yes**: {words.title(first)} stays first; {why}.")
    yield from desk.more(
        f"Keeping it is right with {words.percent(first['confidence_share'])} confidence."
        if first["kind"] == "keep"
        else f"Predicted {words.speed(first)}, confidence {words.sure(first)}."
    )
    if others:
        row = max(others, key=lambda item: item.get("speedup_per_token") or 0.0)
        yield from desk.say(*list(verdict.argued(f"proposal {row['number']}", row, own, first))[:1])
    yield from _neighbours(desk, first["number"])
    if data.get("not_known"):
        yield from desk.say(f"Still not known: {facts.in_words(data['not_known'])}.")


def _neighbours(desk: Desk, number: int) -> Answer:
    around = yield from get(desk, "sensitivity", number=number)
    near = [s for s in around.get("one_step_away", ()) if not s.get("rule") and s.get("speedup_over_this")]
    if near:
        best = max(near, key=lambda step: step["speedup_over_this"])
        if best["speedup_over_this"] > 1 + words.SAME:
            yield from desk.say(
                f"One step away, {words.stepped(best)} is predicted at {words.ratio(best['speedup_over_this'])} the speed of "
                f"proposal {number}: the next trial."
            )
        else:
            yield from desk.say("No legal neighbour one step away is predicted to be faster.")


@capability(
    "What would change the recommendation",
    "What would change your mind?",
    "Which measurement would make you pick another proposal?",
    "What would it take for proposal 2 to be the better one?",
    "How sensitive is the ranking?",
    "At what step time is proposal 1 not worth it?",
)
def change_mind(desk: Desk, given: NoArguments) -> Answer:
    """The numbers at which the order of the proposals turns: step times, missing facts, memory, neighbours."""
    rows, ran, data = yield from board(desk)
    first = rows[0]
    own, items = f"proposal {first['number']}", []
    now, time = ran.get("step_time_s"), first.get("step_time_s")
    if first["kind"] != "keep" and now and isinstance(time, Mapping):
        inside = f"; its interval reaches {words.time(time['high80'])}" if time["high80"] > now else ""
        items.append(f"**its measurement**: at {words.time(now)} per step or more {own} gains nothing{inside}")
    items += [text for row in rows[1:3] if (text := verdict.turns(f"proposal {row['number']}", row, own, first))]
    unknown = data.get("not_known", ())
    if unknown:
        items.append(f"**a missing fact**: {facts.in_words(unknown)}")
    if first.get("hbm_per_chip_bytes"):
        items.append(f"**memory**: it needs {words.memory(first)} per chip by computation; less than that rules it out")
    yield from desk.bullets(items)
    yield from _neighbours(desk, first["number"])
    yield from unknown_facts(desk, unknown)


@capability(
    "Sensitivity around a configuration",
    "What lies one step away from this proposal?",
    "Show the neighbouring configurations.",
    "Which axis matters most around this point?",
    "How far is this from the optimum?",
)
def neighbours(desk: Desk, given: About) -> Answer:
    """Each axis doubled against another, the batch and the remat policy around a proposal: time and legality of each."""
    number = _which(desk, given)
    data = yield from get(desk, "sensitivity", number=number)
    rows = data["one_step_away"]
    lines = [
        [words.stepped(r), words.ratio(r["speedup_over_this"]) if r.get("speedup_over_this") else "–",
         words.size(r["hbm_total_bytes"]) if r.get("hbm_total_bytes") else "–",
         f"no: rule {words.rule(r['rule'])}" if r.get("rule") else "yes"]
        for r in rows[:12]
    ]  # fmt: skip
    if not lines:
        raise ToolError("Nothing one step away can be priced.")
    yield from desk.say(f"Around proposal {number}, {words.mesh(data['of'])}:")
    yield from desk.table(["Step", f"Speed over proposal {number}, predicted", "Memory per chip", "Legal"], lines)


@capability(
    "Best legal candidates",
    "What are the best configurations of all?",
    "Is there anything better than the proposals?",
    "List the top ten candidates of the search.",
    "What is the optimal mesh?",
)
def search(desk: Desk, given: NoArguments) -> Answer:
    """The best of all legal candidates as the ranking has them, within what the conversation holds."""
    data = yield from get(desk, "search", top=8)
    rows = [row for row in data["candidates"] if row.get("speedup_per_token")]
    names = [
        words.configuration(row)
        + (f" (proposal {row['stands_as_proposal']})" if row.get("stands_as_proposal") else "")
        + (" (current)" if row.get("is_what_runs") else "")
        for row in rows
    ]
    lines = [
        [name, words.ratio(row["speedup_per_token"]), words.span(row), words.percent(row["confidence_share"])]
        for name, row in zip(names, rows, strict=True)
    ]
    yield from desk.table(["Configuration", "Per token, predicted", "80 % interval", "Confidence"], lines)
    yield from desk.say("Ranked by gain against uncertainty and against what a change costs to try.")
    yield from offers([{**row, "may_run": not row.get("is_what_runs")} for row in rows], 1)


@capability(
    "Meshes that were rejected",
    "What did you reject and why?",
    "Which meshes are illegal here?",
    "How many configurations were ruled out by memory?",
    "Which rule excludes most candidates?",
)
def rejected(desk: Desk, given: NoArguments) -> Answer:
    """Meshes that were left out, nearest to the current one first, each with the rule that it breaks."""
    data = yield from get(desk, "rejected", top=8)
    rows = data["rows"]
    if not rows:
        raise ToolError("No mesh was rejected.")
    yield from desk.table(
        ["Mesh", "Rule", "Why"], [[words.mesh(row), words.rule(row["rule"]), str(row["reason"])] for row in rows]
    )
    counts = [f"{words.rule(rule)} {count}" for rule, count in data["count_by_rule"].items()]
    yield from desk.say(f"Of {data['meshes_considered']:,} meshes considered, by the first rule each broke: {words.listed(counts)}.")


@capability(
    "Legal meshes and divisors",
    "What must my batch be divisible by?",
    "Which meshes are legal on this slice?",
    "Which sizes may the tensor axis have?",
    "Is this mesh valid for the topology?",
    "What are the divisibility rules?",
)
def legal(desk: Desk, given: Configured) -> Answer:
    """What the batch must divide by, the model sizes that axes must divide, and whether a mesh is legal."""
    if given.named:
        found = yield from meant(desk, given)
        row = yield from get(desk, "legality", **found[0])
        broken = words.violations(row)
        yield from desk.say(
            f"{words.configuration(row)} is **not legal**: {broken[0]}" if broken else f"{words.configuration(row)} is **legal**, as far as is known."
        )
        yield from desk.bullets(broken[1:4])
        return
    data = yield from get(desk, "divisors")
    yield from desk.say(
        f"On {words.mesh(data)} the global batch must be a multiple of **{data['batch_must_divide_by']:,}** "
        f"({data['batch_shards']:,} batch shards, {data['grad_accum']:,} micro-batches)."
    )
    if data.get("model_sizes"):
        sizes = [f"{words.rule(name)} {value:,}" for name, value in data["model_sizes"].items()]
        yield from desk.say(f"Axes must divide the model's sizes: {words.listed(sizes)}.")
    rows = yield from get(desk, "rejected", top=1)
    counts = [f"{words.rule(rule)} {count}" for rule, count in rows["count_by_rule"].items()]
    yield from desk.say(f"Of {rows['meshes_considered']:,} meshes considered, by the first rule each broke: {words.listed(counts) or 'none'}.")
    yield from search(desk, NoArguments())


@capability(
    "Accuracy of the predictions",
    "How accurate are your predictions?",
    "How far off is the performance model usually?",
    "Can I trust these numbers?",
    "Has the model been validated on this chip?",
)
def accuracy(desk: Desk, given: NoArguments) -> Answer:
    """The intervals and confidences of the proposals, what widens them, and where measured errors are published."""
    rows, _, data = yield from board(desk)
    lines = [
        [str(r["number"]), words.ratio(r["speedup_per_token"]), words.span(r), words.percent(r["confidence_share"])]
        for r in rows if r.get("speedup_low80")
    ]  # fmt: skip
    yield from desk.say("Each prediction has an 80 % interval, and a confidence fitted on measured pairs of runs:")
    if lines:
        yield from desk.table(["Proposal", "Per token, predicted", "80 % interval", "Confidence"], lines)
    unknown = data.get("not_known", ())
    yield from desk.say(
        f"The intervals are wide because {facts.not_known(unknown)}." if unknown
        else "Model, batch and sequence length are known: every term is computed, then calibrated on this run."
    )  # fmt: skip
    row = yield from whole(desk, rows[0]["number"])
    if row.get("lowers_confidence"):
        yield from desk.say("What lowers the confidence of proposal 1:")
        yield from desk.bullets([str(item) for item in row["lowers_confidence"]])
    yield from desk.say("Errors by chip, model and kind of run are published on the accuracy page.")


class Launch(About):
    tool: Annotated[str, Field(max_length=20, description="maxtext, jax, axlearn, megatron or yaml.")] = ""


@capability(
    "Launch files",
    "Give me the launch flags for the proposal.",
    "Show the MaxText command line.",
    "How do I configure this in Megatron?",
    "Write the config file for this mesh.",
    "How do I apply proposal 1 in my code?",
)
def launch(desk: Desk, given: Launch) -> Answer:
    """Flags and files that would launch a proposal with MaxText, plain JAX, AXLearn or Megatron-LM, as text to copy."""
    target = {"number": _which(desk, given)}
    every = yield from get(desk, "launch_files", **target)
    if not every.get("may_run", True):
        yield from desk.say("It is not legal as it is:", *words.violations(every))
    kinds = [item["kind"] for item in every["files"]]
    kind = next((kind for kind in kinds if given.tool and kind.startswith(given.tool.lower())), kinds[0])
    found = yield from get(desk, "launch_files", **target, kind=kind)
    file = found["files"][0]
    body = f"; nothing is started:\n\n```\n{str(file['text']).strip()}\n```" if file.get("text") else " cannot be written:"
    yield from desk.say(f"`{file['name']}` of proposal {target['number']}{body}")
    yield from desk.bullets([str(note) for note in file.get("notes", ())])
    rest = [f"`{item['name']}`" for item in every["files"] if item["name"] != file["name"]]
    if rest:
        yield from desk.say(f"Also available on the proposal's page: {words.listed(rest)}.")


class Outcome(About):
    step_time_s: Annotated[float | None, Field(gt=0, le=1e6, description="Measured step time in seconds.")] = None


@capability(
    "Your measurement against the prediction",
    "I measured proposal 1 and got a different step time.",
    "We ran it and the step took longer than predicted.",
    "The trial came out slower, what now?",
    "How do I report the measured result?",
)
def result(desk: Desk, given: Outcome) -> Answer:
    """A measured step time of a proposal beside its prediction, and how the measurement is entered so that it counts."""
    number = _which(desk, given)
    row = yield from whole(desk, number)
    time = row.get("step_time_s")
    if given.step_time_s and isinstance(time, Mapping):
        got = given.step_time_s
        where = "above" if got > time["high80"] else "below" if got < time["low80"] else "within"
        yield from desk.say(f"{got:g} s per step, as you state, lies **{where}** the 80 % interval of proposal {number}: {words.step(row)} was predicted.")
    yield from desk.say(f"It counts once the profile of that run is uploaded on the card of proposal {number}; the confidence of further proposals is then recalibrated.")
