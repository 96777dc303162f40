"""The report by a language model: its numbers are references, its verdict is the computed one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.control import Cancel
from agent.events import Complaint, Final, ModelRequest, RunEvent, Stopped
from agent.provider.openai import OpenAIProvider
from diagnosis.analyzer.report import CORRELATION, DETAILS, HEALTH, IDENTIFICATION
from evaluation.quality.evidence import bench
from proposals.agents import analyzer_agent
from proposals.agents.analyzer_agent import Reported
from proposals.agents.workbench import Workbench
from tests.agent.conftest import drive, settings_for
from tests.agent.server import Reply, Script, ScriptedServer, answer, calls, error, refusal, text

pytestmark = pytest.mark.slow

Write = Callable[..., tuple[list[RunEvent], Reported, ScriptedServer]]
LOOK = (("ops", {}), ("ops", {"group_by": "family"}))


@pytest.fixture
def write() -> Iterator[Write]:
    """Lets a scripted model write the report on experiment 3."""
    servers: list[ScriptedServer] = []

    def write(script: Script, of: Workbench | None = None) -> tuple[list[RunEvent], Reported, ScriptedServer]:
        server = ScriptedServer(script)
        server.__enter__()
        servers.append(server)
        found, outcome = drive(analyzer_agent.report(of or bench(), OpenAIProvider(settings_for(server))))
        return found, outcome, server  # type: ignore[return-value]

    yield write
    for server in servers:
        server.__exit__()


def true_report(of: Workbench | None = None) -> dict[str, Any]:
    """A report in references to the overview (r1) and to `LOOK` (r2, r3)."""
    return {
        "bottleneck": (of or bench()).diagnosis.bottleneck.primary,
        "experiment_details": [
            "Hardware: {r1.run.configuration.hardware.chip}, `{r1.run.mesh}`, {r1.run.chips} chips."
        ],
        "kpi_health": [
            "The step takes {r1.kpis.step_time_s}, "
            "of which {r1.breakdown.parts_s.compute / r1.kpis.step_time_s as percent} compute."
        ],
        "ops_and_roofline": [
            "The longest op is `{r2.rows[0].name}` with {r2.rows[0].time_s}, {r2.rows[0].share} of it."
        ],
        "correlation": [
            "The verdict is {r1.verdict.primary}: {r1.findings[0].title} costs at most {r1.findings[0].saving_share}."
        ],
    }


def looks_then(reply: Callable[[dict[str, Any]], Reply]) -> Callable[[dict[str, Any]], Reply]:
    """A model that looks at the ops before it answers."""

    def model(body: dict[str, Any]) -> Reply:
        shown = 1
        if sum(m["role"] == "tool" for m in body["messages"]) == shown:
            return calls(*LOOK)
        return reply(body)

    return model


def said(reported: Reported) -> str:
    return "\n".join(line.text for lines in reported.sections.values() for line in lines)


def final(events: list[RunEvent]) -> Final:
    (found,) = [item for item in events if isinstance(item, Final)]
    return found


def test_a_report_in_references_is_printed_and_is_the_models(write: Write) -> None:
    events, reported, server = write(looks_then(lambda body: answer(true_report())))
    assert [e.complaints for e in events if isinstance(e, Complaint)] == []
    assert (reported.source, reported.struck, reported.sentence) == ("model", 0, "")
    assert list(reported.sections) == [DETAILS, HEALTH, IDENTIFICATION, CORRELATION]
    assert reported.outcome.usage.tokens > 0
    config, longest = bench().config, bench().diagnosis.ops[0]
    assert f"{config.hardware.chip}, `{config.mesh.text()}`, {config.hardware.chips} chips" in said(reported)
    (line,) = reported.sections[IDENTIFICATION]
    assert longest.name in line.text and line.results == ("r2",)
    assert {"ops", "look"} <= set(server.requests[0].tool_names)
    assert not {"price", "search", "hold", "approve", "add"} & set(server.requests[0].tool_names)


def test_a_typed_number_is_sent_back_and_mended(write: Write) -> None:
    def model(body: dict[str, Any]) -> Reply:
        report = true_report()
        if "87.3" not in body["messages"][-1]["content"]:
            report["kpi_health"].append("The matrix units idle for 87.3 % of the step.")
        return answer(report)

    events, reported, _ = write(looks_then(model))
    (complaint,) = [e for e in events if isinstance(e, Complaint)]
    assert "87.3" in complaint.complaints[0]
    assert reported.source == "model"
    assert "87.3" not in said(reported)


def test_after_two_corrections_its_sentence_goes_and_the_rest_stays(write: Write) -> None:
    report = true_report()
    report["kpi_health"][0] += " The units idle for 87.3 % of it."
    report["correlation"].append("{r9.rows[0].name} is to blame.")
    events, reported, _ = write(looks_then(lambda body: answer(report)))
    assert [e.reason for e in events if isinstance(e, Stopped)] == ["rejected"]
    assert len([e for e in events if isinstance(e, Complaint)]) == 2
    assert (reported.source, reported.struck, final(events).source) == ("model", 2, "model")
    assert "87.3" not in said(reported) and "to blame" not in said(reported)
    assert len(reported.sections[HEALTH]) == 1 and "step takes" in reported.sections[HEALTH][0].text


def test_a_report_of_typed_numbers_gives_way_to_the_built_in_one(write: Write) -> None:
    wrong = ["The chips wait 87.3 % of 12.9 s.", "HBM serves 77.1 TB/s.", "The links carry 99.9 GB/s."]
    report = {**dict.fromkeys(("experiment_details", "kpi_health", "ops_and_roofline", "correlation"), wrong)}
    primary = bench().diagnosis.bottleneck.primary
    events, reported, _ = write(lambda body: answer({"bottleneck": primary, **report}))
    assert (reported.source, final(events).source) == ("fallback", "fallback")
    assert {h: [line.text for line in lines] for h, lines in reported.sections.items()} == bench().diagnosis.report
    assert reported.sentence


def test_the_verdict_is_computed_and_cannot_be_argued_away(write: Write) -> None:
    primary = bench().diagnosis.bottleneck.primary
    other = "input" if primary != "input" else "compute"
    events, reported, _ = write(looks_then(lambda body: answer({**true_report(), "bottleneck": other})))
    complaint = next(e for e in events if isinstance(e, Complaint))
    assert f"verdict is {primary}" in complaint.complaints[0]
    assert reported.source == "fallback"


@pytest.mark.parametrize(
    "reply", [error(401, "Bad key"), error(404, "No such model"), refusal("No."), text("", finish="stop"), text("no")]
)
def test_where_the_endpoint_fails_the_built_in_report_stands_and_says_why(write: Write, reply: Reply) -> None:
    events, reported, _ = write(lambda body: reply)
    assert reported.source == final(events).source == "fallback"
    assert reported.sentence == next(e for e in events if isinstance(e, Stopped)).sentence
    assert said(reported) == "\n".join(line for lines in bench().diagnosis.report.values() for line in lines)


def test_stopping_ends_the_model_and_no_report_stands_instead() -> None:
    with ScriptedServer(lambda body: text("never " * 50)) as server:
        cancel = Cancel()
        steps = analyzer_agent.report(bench(), OpenAIProvider(settings_for(server)), cancel)
        events = []
        try:
            while True:
                events.append(next(steps))
                if isinstance(events[-1], ModelRequest):
                    cancel.set()
        except StopIteration as end:
            reported = end.value
    assert reported.source == "cancelled"
    assert not [e for e in events if isinstance(e, Final)]


def test_headings_and_list_marks_inside_a_statement_do_not_count_as_such(write: Write) -> None:
    report = true_report()
    report["experiment_details"][0] = f"- {report['experiment_details'][0]}"
    _, reported, _ = write(looks_then(lambda body: answer(report)))
    assert reported.sections[DETAILS][0].text.startswith("Hardware: ")
