"""The questions of a proposal and of the list of them, answered from what was predicted and what was measured."""

from __future__ import annotations

from typing import Any

from dialogue.computations.arguments import Nothing, OfProposal, TwoProposals, arguments_of
from dialogue.computations.computation import Answer, Next, computation
from dialogue.computations.values import plan_bar, plan_values, run_bar, run_values, terms, text
from perfmodel.config import missing_facts
from proposals import facts
from proposals.agents.tools.known import Records, history
from proposals.agents.tools.shared import proposal
from proposals.agents.workbench import ProposalState, Workbench
from proposals.candidate import Candidate
from proposals.compiling.wording import sentence as sentence_of_check
from proposals.plan import ProposalPlan

#: A lead smaller than this ratio is none: it would not show in what is printed.
NOTABLE = 1.01


def _next(asked: int, *without: str) -> tuple[Next, ...]:
    keys = ("why_proposal", "confidence", "compare", "precedents")
    return tuple(Next(key, {"proposal": asked}) for key in keys if key not in without)


@computation("Why this one?", "proposal", "why proposal reason rationale recommended")
def why_proposal(bench: Workbench, asked: OfProposal) -> Answer:
    """What a proposal changes in the step, its reasons and what it gives up."""
    plan = proposal(bench, asked.proposal).proposal
    return Answer(
        {
            **run_values(bench),
            "it": plan_values(bench, plan),
            "terms": [row for row in terms(bench, plan) if row["matters"]][:6],
            "plan": plan,
        },
        (*run_bar(bench), *plan_bar(bench, plan)),
        (*_next(asked.proposal, "why_proposal"), Next("around", arguments_of(bench, plan))),
        f"Why proposal {asked.proposal}?",
    )


@computation(
    "How sure, and what would lower it?",
    "proposal",
    "sure confident confidence certain risk interval lower raise probability",
)
def confidence(bench: Workbench, asked: OfProposal) -> Answer:
    """Calibrated probability that a proposal is faster, its interval, and what raises or lowers it."""
    state = proposal(bench, asked.proposal)
    return Answer(
        _confidence(bench, state), (), _next(asked.proposal, "confidence"), f"How sure is proposal {asked.proposal}?"
    )


def _confidence(bench: Workbench, state: ProposalState) -> dict[str, Any]:
    plan = state.proposal
    return {
        "it": plan_values(bench, plan),
        "plan": plan,
        "keep": plan.kind == "keep",
        "compiled": text(sentence_of_check(state.compiled)) if state.compiled else None,
        "unknown": text(facts.not_known(plan.predicted.missing)) if plan.predicted.missing else None,
    }


@computation("Compare with another", "proposal", "compare difference between versus vs proposal current")
def compare(bench: Workbench, asked: TwoProposals) -> Answer:
    """Two proposals, or a proposal and the current configuration, part by part."""
    one = proposal(bench, asked.proposal).proposal
    other = proposal(bench, asked.other).proposal if asked.other else None
    now = bench.pricer.evaluate(Candidate(bench.config.mesh.to_json()), bench.constraints)
    others = [item.proposal.rank for item in bench.proposals if item.proposal.rank not in (asked.proposal, asked.other)]
    name = f"proposal {asked.other}" if other else "the current configuration"
    return Answer(
        {
            **run_values(bench),
            "it": plan_values(bench, one),
            "other": plan_values(bench, other or now),
            "with_now": other is None,
            "terms": terms(bench, one, other),
        },
        (*run_bar(bench), *plan_bar(bench, one), *(plan_bar(bench, other) if other else ())),
        (
            *(
                Next("compare", {"proposal": asked.proposal, "other": rank}, f"Compare with proposal {rank}")
                for rank in others[:2]
            ),
            *_next(asked.proposal, "compare"),
        ),
        f"Proposal {asked.proposal} beside {name}",
    )


@computation(
    "Which precedents are closest?",
    "proposal",
    "precedents history similar measured cases like this evidence records pairs anybody tried before past authors",
)
def precedents(bench: Workbench, asked: OfProposal) -> Answer:
    """Measured changes most like a proposal's, with the effect then and the one expected here."""
    return Answer(
        {"found": history(bench, Records(like_proposal=asked.proposal, top=5))},
        (),
        _next(asked.proposal, "precedents"),
        f"Which precedents are closest to proposal {asked.proposal}?",
    )


def _ranked(bench: Workbench) -> dict[str, Any]:
    """The proposals, and which leads by probability, by gain and by its low end."""
    plans = [item.proposal for item in bench.proposals]
    worth = [plan for plan in plans if plan.kind != "keep" and not plan.slower]

    def leader(key: Any) -> ProposalPlan | None:
        return max(worth, key=lambda plan: key(plan) or 0.0, default=None)

    lead, likely = plans[0] if plans else None, leader(lambda plan: plan.confidence)
    gain, low = leader(lambda plan: plan.predicted.speedup), leader(lambda plan: plan.predicted.speedup_low80)

    def leads(other: ProposalPlan | None, key: Any, least: float) -> bool:
        return bool(lead and other and other is not lead and (key(other) or 0.0) > (key(lead) or 0.0) * least)

    return {
        "rows": [plan_values(bench, plan) for plan in plans],
        "lead": plan_values(bench, lead) if lead else None,
        "keep": bool(lead and lead.kind == "keep"),
        "likely": plan_values(bench, likely) if likely else None,
        "gain": plan_values(bench, gain) if gain else None,
        "low": plan_values(bench, low) if low else None,
        "agree": bool(lead and likely is lead and gain is lead and low is lead),
        "likely_other": leads(likely, lambda plan: plan.confidence, NOTABLE),
        "gain_other": leads(gain, lambda plan: plan.predicted.speedup, NOTABLE),
        "low_other": low is not gain and leads(low, lambda plan: plan.predicted.speedup_low80, NOTABLE),
        "unknown": text(facts.not_known(missing_facts(bench.config))) if missing_facts(bench.config) else None,
    }


_TURNS = ("which_first", "how_confident", "others_promising", "still_confident")


def _turns(*without: str) -> tuple[Next, ...]:
    return tuple(Next(key) for key in _TURNS if key not in without)


def _bars(bench: Workbench) -> tuple[Any, ...]:
    return (*run_bar(bench), *(bar for item in bench.proposals for bar in plan_bar(bench, item.proposal)))


@computation("Which first?", "proposals", "which first recommend recommended best start try proposal choose")
def which_first(bench: Workbench, asked: Nothing) -> Answer:
    """The proposal to try first, and by which measure another one leads."""
    return Answer(_ranked(bench), _bars(bench), (*_turns("which_first"), Next("why_proposal", {"proposal": 1})))


@computation("How confident are you?", "proposals", "how confident sure certain probability reliable trust")
def how_confident(bench: Workbench, asked: Nothing) -> Answer:
    """Probability and interval of each proposal, and what lowers that of the first."""
    first = bench.proposals[0] if bench.proposals else None
    values = {**_ranked(bench), **({"first": _confidence(bench, first)} if first else {"first": None})}
    return Answer(values, (), (*_turns("how_confident"), Next("confidence", {"proposal": 1})))


@computation(
    "The other two look more promising", "proposals", "other two more promising proposals 2 and 3 better disagree"
)
def others_promising(bench: Workbench, asked: Nothing) -> Answer:
    """For each other proposal what speaks for it beside the first, and what it gives up."""
    plans = [item.proposal for item in bench.proposals]
    rows = []
    for plan in plans[1:]:
        rows.append(
            {
                "it": plan_values(bench, plan),
                "faster": (plan.predicted.speedup or 0) > (plans[0].predicted.speedup or 0) * NOTABLE,
                "likelier": plan.confidence > plans[0].confidence * NOTABLE,
                "lower": (plan.predicted.speedup_low80 or 0) > (plans[0].predicted.speedup_low80 or 0) * NOTABLE,
                "lighter": _memory(plan) * NOTABLE < _memory(plans[0]),
                "plan": plan,
                "terms": [row for row in terms(bench, plan, plans[0]) if row["matters"]][:3],
            }
        )
    return Answer(
        {**_ranked(bench), "others": rows},
        _bars(bench),
        (*_turns("others_promising"), Next("compare", {"proposal": 1})),
    )


@computation(
    "Still most confident without further input?",
    "proposals",
    "still most confident without further input measurement decide final",
)
def still_confident(bench: Workbench, asked: Nothing) -> Answer:
    """Whether the first still leads on what is known, and the measurement that would decide between them."""
    plans = [item.proposal for item in bench.proposals]
    overlap = [
        plan_values(bench, plan)
        for plan in plans[1:]
        if plan.predicted.speedup_high80
        and plans[0].predicted.speedup_low80
        and plan.predicted.speedup_high80 > plans[0].predicted.speedup_low80
        and plan.kind != "keep"
    ]
    values = {**_ranked(bench), "overlap": overlap, "plan": plans[0] if plans else None}
    return Answer(values, (), (*_turns("still_confident"), Next("measure_next")))


def _memory(plan: ProposalPlan) -> float:
    memory = plan.predicted.hbm_per_chip_bytes
    return memory.total if memory else float("inf")
