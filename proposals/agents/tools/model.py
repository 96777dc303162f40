"""Tools over the performance model: the current proposals, predictions for any configuration, rejected meshes."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agent.tools import Arguments, ToolError
from perfmodel.confidence import claimed
from perfmodel.config import mesh_text, missing_facts, placement_of
from perfmodel.legality import RULES
from perfmodel.workload import REMAT, SHARDING, chip_of
from proposals import facts
from proposals.agents import priced
from proposals.agents.priced import Current, Priced
from proposals.agents.tool_result import present
from proposals.agents.tools.common import (
    Configuration,
    Held,
    ProposalOrConfiguration,
    Tools,
    as_tool_error,
    evaluated,
    in_detail,
    number_of,
    plan,
    predicted,
    proposal,
    refuse_undecided,
)
from proposals.agents.tools.compiled import compiled
from proposals.agents.tools.traffic import behind
from proposals.agents.workbench import ProposalState
from proposals.candidate import Candidate, candidate, keeps
from proposals.constraints import RULE
from proposals.plan import Citation, Neighbour, ProposalPlan


class Numbered(Arguments):
    number: int | None = Field(None, ge=0, description="One proposal in full; omitted: all of them, in short.")


class CandidateQuery(Arguments):
    constraints: Held = Field(default_factory=Held)
    top: int = Field(8, ge=1, le=25)


class SensitivityOf(ProposalOrConfiguration):
    """A proposal by its number, or a configuration."""


class SideBySide(Arguments):
    configurations: tuple[Configuration, ...] = Field(min_length=2, max_length=6)


class RejectedQuery(Arguments):
    rule: str = Field("", max_length=80, description="Only meshes that break this rule; empty: all.")
    axis: str = Field("", max_length=64, description="With `size`: only meshes where this axis has that size.")
    size: int | None = Field(None, ge=1)
    top: int = Field(10, ge=1, le=40)


class ModelTools(Tools):
    """Whatever the Proposer's bench can price, always under the facts and constraints of the conversation."""

    def proposals(self, asked: Numbered) -> priced.Proposals:
        """Current proposals with status, mesh, changes, predicted step time and speed-up (80 % interval), memory,
        calibrated confidence with what raises and lowers it, reasons, trade-offs, citations. `search` lists
        configurations that are predicted faster and not proposed."""
        bench = self._bench
        made = plan(bench)
        if asked.number is not None:
            return priced.Proposals(proposal=self._whole(proposal(bench, asked.number)), current=self._baseline())
        with as_tool_error():
            states = bench.proposals
        return priced.Proposals(
            current=self._baseline(),
            proposals=tuple(Priced.model_validate(self._short(item)) for item in states),
            meshes_considered=made.considered,
            candidates_priced=made.priced,
            meshes_rejected=len(made.rejected),
            not_known=made.missing,
            fixed_by_user=bench.constraints.to_json(),
            stated_by_user=dict(bench.facts),
            notes=made.notes,
        )

    def predict(self, asked: Configuration) -> Priced:
        """Any mesh and training keys, checked and priced from this profile: step time with interval, speed-up per
        token over the current configuration, memory per chip with parts and headroom, exposed communication per axis
        before and after with its bytes, calls and link bandwidth, confidence, and the rules it breaks."""
        proposal_plan = self._evaluated(asked)
        return Priced.model_validate(
            {
                **in_detail(proposal_plan),
                "proposal_number": number_of(self._bench, proposal_plan),
                "why_not_proposed": self._why_not(proposal_plan),
                "reasons": proposal_plan.reasoning,
                "trade_offs": proposal_plan.trade_offs,
                "raises_confidence": proposal_plan.raises,
                "lowers_confidence": proposal_plan.lowers,
                "not_priced_in_time": [text for key, text in _NOT_IN_THE_TIME.items() if key in proposal_plan.changes],
                "traffic": [] if proposal_plan.violations else self._traffic(proposal_plan),
                "current": self._baseline(),
            }
        )

    def _not_proposed(self) -> list[Priced]:
        """Settings on the current mesh that are predicted faster than every proposal and are not candidates."""
        bench = self._bench
        if not missing_facts(bench.config):
            return []
        with as_tool_error():
            best = max((item.proposal.predicted.speedup or 1.0 for item in bench.proposals), default=1.0)
        rows = []
        for key, value in _SETTINGS:
            if value == getattr(bench.config.training, key) or getattr(bench.constraints, f"keep_{key}"):
                continue
            one = Candidate(bench.config.mesh.to_json(), {key: value})
            with as_tool_error():
                proposal_plan = bench.pricer.evaluate(one, bench.constraints)
            why, speedup = self._why_not(proposal_plan), proposal_plan.predicted.speedup
            if why and speedup and speedup > best:
                rows.append((speedup, Priced.model_validate({**evaluated(proposal_plan), "why_not_proposed": why})))
        return [row for _, row in sorted(rows, key=lambda item: -item[0])]

    def _why_not(self, proposal_plan: ProposalPlan) -> str:
        """Why a configuration that breaks no rule is not a candidate; empty if it is one."""
        missing = missing_facts(self._bench.config)
        if proposal_plan.violations or not missing or number_of(self._bench, proposal_plan):
            return ""
        roles = self._bench.config.mesh.axis_roles
        for item in plan(self._bench).rejected:
            if item.rule.endswith(UNCHECKED) and placement_of(item.mesh, roles) == placement_of(
                proposal_plan.mesh, roles
            ):
                return f"It is excluded from the search: {item.reason} No other rule excludes it."
        if not set(proposal_plan.changes) - {"xla_flags"}:
            return ""
        changed = " and ".join(
            f"{facts.setting(key)} {value}" for key, value in proposal_plan.changes.items() if key != "xla_flags"
        )
        return (
            f"Whether {changed} fits in memory cannot be computed, because {facts.not_known(missing)}; once that is "
            "known, it becomes a candidate."
        )

    def _traffic(self, proposal_plan: ProposalPlan) -> list[dict[str, Any]]:
        return behind(candidate(self._bench.config, proposal_plan))

    def search(self, asked: CandidateQuery) -> priced.Candidates:
        """The best legal candidates (every mesh with every further change) under the constraints, ranked as the
        proposals are: utility weighs the gain against its uncertainty and the cost of a trial. Configurations that are
        predicted faster than all proposals but are not candidates are listed separately, with the reason."""
        with as_tool_error():
            usable = chip_of(self._bench.config.hardware).hbm_usable_bytes
            held = self._bench.constraints.joined(asked.constraints.constraints(usable))
            candidates = self._bench.pricer.search(held, asked.top)
        unknown = missing_facts(self._bench.config)
        rows = [
            Priced.model_validate(
                {
                    "place": place,
                    "mesh": item.mesh,
                    "mesh_text": mesh_text(item.mesh),
                    "changes": item.changes,
                    **predicted(item.predicted),
                    "memory_headroom_bytes": item.memory_headroom_bytes,
                    "confidence_share": claimed(item.faster, bool(unknown)),
                    "utility": item.utility,
                    "is_current": item.keeps or None,
                    "proposal_number": number_of(self._bench, item),
                }
            )
            for place, item in enumerate(candidates, start=1)
        ]
        return priced.Candidates(
            constraints=held.to_json(),
            candidates=tuple(rows),
            faster_but_excluded=tuple(self._not_proposed()),
            current=self._baseline(),
        )

    def sensitivity(self, asked: SensitivityOf) -> priced.Sensitivity:
        """Neighbours of a proposal or a configuration: each axis doubled against another, the batch, the remat policy;
        each with its time, its gain over that configuration, and the rule it breaks."""
        if asked.number is not None:
            of = proposal(self._bench, asked.number).proposal
        else:
            assert asked.configuration is not None
            of = self._evaluated(asked.configuration)
        return priced.Sensitivity.model_validate(
            {
                "of": Priced(number=of.rank or None, mesh_text=mesh_text(of.mesh), changes=of.changes),
                "step_time_s": of.predicted.step_time_s,
                "speedup_per_token": of.predicted.speedup,
                "neighbours": [_neighbour(item) for item in of.sensitivity],
            }
        )

    def compare_meshes(self, asked: SideBySide) -> priced.Compared:
        """Compares two to six configurations, each as `predict` prices it, with the current one: the fastest legal one
        per token, and how much longer each of the others takes. Configurations that are invalid on these chips are in
        `not_priced` with the reason."""
        plans: dict[int, ProposalPlan] = {}
        refused: list[dict[str, Any]] = []
        for number, one in enumerate(asked.configurations, start=1):
            try:
                plans[number] = self._evaluated(one)
            except ToolError as error:
                of = present({"ici": one.ici, "dcn": one.dcn, "changes": one.changes})
                refused.append({"configuration": number, **of, "reason": str(error)})
        if not plans:
            raise ToolError(
                "None of them can be priced. " + " ".join(f"{r['configuration']}: {r['reason']}" for r in refused)
            )
        fit = {number: item for number, item in plans.items() if not item.violations and item.predicted.speedup}
        best = max(fit, key=lambda number: fit[number].predicted.speedup or 0.0, default=None)
        fastest = fit[best].predicted.speedup if best is not None else None
        rows = [
            Priced.model_validate(
                {
                    "configuration": number,
                    **evaluated(item),
                    "communication": item.communication,
                    "proposal_number": number_of(self._bench, item),
                    "time_per_token_over_fastest": fastest / item.predicted.speedup
                    if fastest and item.predicted.speedup
                    else None,
                }
            )
            for number, item in plans.items()
        ]
        return priced.Compared(
            configurations=tuple(rows), not_priced=tuple(refused), fastest_legal=best, current=self._baseline()
        )

    def legality(self, asked: Configuration) -> priced.Legality:
        """Whether a configuration can run: the rules it breaks (divisibility, topology, memory, the user's
        constraints), memory per chip by parts against capacity, and which missing facts leave it open."""
        proposal_plan = self._evaluated(asked)
        memory, room = proposal_plan.predicted.hbm_per_chip_bytes, proposal_plan.memory_headroom_bytes
        return priced.Legality.model_validate(
            {
                "mesh": proposal_plan.mesh,
                "mesh_text": mesh_text(proposal_plan.mesh),
                "changes": proposal_plan.changes,
                "may_run": not proposal_plan.violations,
                "violations": proposal_plan.violations,
                "hbm_per_chip_bytes": memory,
                "memory_headroom_bytes": room,
                "fits": room >= 0 if room is not None else None,
                "not_known": missing_facts(self._bench.config),
                "rules": RULES,
                "current": Current(hbm_per_chip_bytes=self._baseline().hbm_per_chip_bytes) if memory else Current(),
            }
        )

    def rejected(self, asked: RejectedQuery) -> priced.Rejected:
        """Rejected meshes, nearest to the current one first, each with the rule it breaks and why. For a particular
        mesh ask `legality`."""
        made = plan(self._bench)
        counts: dict[str, int] = {}
        for item in made.rejected:
            counts[item.rule] = counts.get(item.rule, 0) + 1
        if asked.rule and asked.rule not in counts:
            asked_for = [rule for rule in counts if asked.rule.lower() in rule.lower()]
            if not asked_for:
                raise ToolError(f"No mesh broke the rule {asked.rule!r}; rules broken: {', '.join(counts) or 'none'}.")
        matching_meshes = [
            item
            for item in made.rejected
            if asked.rule.lower() in item.rule.lower()
            and (not asked.axis or item.mesh.get("ici", {}).get(asked.axis, 1) == (asked.size or 1))
        ]
        return priced.Rejected(
            meshes_considered=made.considered,
            rejected_listed=len(made.rejected),
            count_by_rule=counts,
            matching=len(matching_meshes),
            rows=tuple(
                priced.RejectedMesh(
                    mesh=item.mesh,
                    mesh_text=mesh_text(item.mesh),
                    rule=item.rule,
                    reason=item.reason,
                    whose_rule=_whose(item.rule),
                )
                for item in matching_meshes[: asked.top]
            ),
        )

    def _evaluated(self, asked: Configuration) -> ProposalPlan:
        refuse_undecided(self._bench, asked.changes)
        with as_tool_error():
            return self._bench.pricer.evaluate(asked, self._bench.constraints)

    def _baseline(self) -> Current:
        """The current configuration as measured."""
        mesh, made = self._bench.config.mesh, plan(self._bench).baseline
        held = made.hbm_per_chip_bytes
        return Current.model_validate(
            {
                "mesh": mesh.to_json(),
                "mesh_text": mesh.text(),
                "step_time_s": made.step_time_s.estimate if made.step_time_s else None,
                "breakdown_s": made.breakdown_s,
                "hbm_per_chip_bytes": held,
                "memory_headroom_bytes": held.headroom if held else None,
                "compiled": compiled(self._bench.compiled),
            }
        )

    def _short(self, state: ProposalState) -> dict[str, Any]:
        item = state.proposal
        return {
            **evaluated(item),
            "number": item.rank,
            "kind": item.kind,
            "status": state.status,
            "title": item.title,
            "compiled": compiled(state.compiled),
            "keeps_the_mesh": keeps(self._bench.config, Candidate(item.mesh)) or None,
            "reasons": item.reasoning,
            "trade_offs": item.trade_offs,
            "citations": [Citation(c.source, c.section, c.title, key=c.key) for c in item.citations],
        }

    def _whole(self, state: ProposalState) -> priced.Whole:
        item = state.proposal
        return priced.Whole.model_validate(
            {
                **self._short(state),
                **in_detail(item),
                "compiled": compiled(state.compiled, candidate(self._bench.config, item)),
                "traffic": self._traffic(item),
                "expected_impact": item.expected_impact,
                "raises_confidence": item.raises,
                "lowers_confidence": item.lowers,
                "answers_findings": item.findings,
                "citations": item.citations,
                "sensitivity": [_neighbour(step) for step in item.sensitivity],
            }
        )


#: How rules end that only say that a fact is missing.
UNCHECKED = "_unknown"
#: Settings tried on the current mesh when too few facts are known to propose them.
_SETTINGS = (*(("remat", policy) for policy in REMAT), *(("weight_sharding", kind) for kind in SHARDING))
#: Changes whose memory is priced, and which part of their time is not.
_NOT_IN_THE_TIME = {
    "sequence_parallel": "Sequence parallelism moves the same bytes (an all-reduce is a reduce-scatter and an "
    "all-gather); that norms and residuals are computed on all ranks without it is modelled in memory but "
    "not in step time.",
    "loss_parallel": "Where the loss is computed is modelled in memory but not in step time.",
}


def _whose(rule: str) -> str:
    if rule.endswith(UNCHECKED):
        return "unchecked: a fact is missing; `predict` prices it unchecked"
    return "user constraint" if rule.startswith(RULE) else "hardware or model"


def _neighbour(item: Neighbour) -> priced.Neighbour:
    return priced.Neighbour.model_validate(
        {
            "varies": item.varies,
            "step": item.step,
            "mesh_text": mesh_text(item.mesh),
            "changes": item.changes,
            "step_time_s": item.step_time_s,
            "speedup_per_token": item.speedup,
            "speedup_over_this": item.relative,
            "hbm_total_bytes": item.memory_bytes,
            "rule": item.rule,
            "reason": item.reason,
        }
    )
