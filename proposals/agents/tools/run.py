"""Tools over measurements: the run, its KPIs, the bottleneck, findings, collectives, other experiments."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Annotated, Any

from pydantic import Field

from agent.tools import Arguments, ToolError
from diagnosis import compare as comparing
from diagnosis.report import SourcedValue
from perfmodel.config import missing_facts
from perfmodel.config_file import config_to_json
from proposals.agents.diagnosed import CollectiveRow, Collectives, EvidenceRow, FindingRow, Kpis, Verdict
from proposals.agents.retrieval import Peer
from proposals.agents.tool_result import BRIEF, ToolResult, present
from proposals.agents.tools.common import Tools, as_tool_error, refuse_without_profile, without_profile

#: Of a model's shape, what is said of it.
_SHAPE = ("layers", "d_model", "d_ff", "heads", "kv_heads", "head_dim", "vocab", "experts", "experts_per_token")
#: Ops named behind one number.
OPS_NAMED = 5


class Compared(Arguments):
    experiment: int | None = Field(None, description="Id of the other experiment; without it they are listed.")
    name: str = Field("", max_length=200, description="Part of a name, to list fewer.")
    top: int = Field(10, ge=1, le=40, description="Ops with the largest change.")


class AxisFilter(Arguments):
    axis: str = Field("", max_length=200, description="Only this mesh axis, or `dcn`; empty: all.")
    by_kind: bool = Field(False, description="With the sums over each kind of collective.")


class ProfileFacts(ToolResult):
    """How the profile was made, and what it holds."""

    provenance: str = ""
    label: str = ""
    device: str = ""
    cores: int | None = None
    hosts: int | None = None
    steps: int = 0
    ops: int = 0
    omitted_ops: int | None = None


class Run(ToolResult):
    """The run as configured and recorded."""

    experiment: str = ""
    configuration: dict[str, Any] = {}
    model_shape: dict[str, int] = {}
    chips: int = 0
    mesh_text: str = ""
    axis_roles: dict[str, str] = {}
    global_batch_tokens: int | None = None
    global_batch_tokens_over_chips: float | None = None
    not_known: tuple[str, ...] = ()
    stated_by_user: dict[str, Any] = {}
    fixed_by_user: dict[str, Any] = {}
    profile: ProfileFacts = ProfileFacts()
    program: str = ""
    warnings: tuple[str, ...] = ()


class Comparison(ToolResult):
    """Another experiment beside this one (see `diagnosis.compare.Comparison`), or the experiments to choose from."""

    kept = frozenset(field.name for field in fields(comparing.Comparison))
    experiments: tuple[Annotated[Peer, BRIEF], ...] = ()
    before_experiment: int | None = None
    after: str = ""
    comparability: comparing.Comparability | None = None
    configuration: tuple[comparing.ConfigChange, ...] = ()
    kpis: tuple[comparing.KpiChange, ...] = ()
    breakdown: tuple[comparing.TermChange, ...] = ()
    ops: tuple[comparing.OpChange, ...] = ()
    ops_total: int = 0
    matched_before: float = 0.0
    matched_after: float = 0.0
    collectives: tuple[comparing.CollectiveChange, ...] = ()
    findings: tuple[comparing.FindingChange, ...] = ()
    bottleneck: dict[str, str] = {}
    speedup: float | None = None
    significant: bool | None = None
    statement: tuple[str, ...] = ()
    evidence: tuple[SourcedValue, ...] = ()


class RunTools(Tools):
    """The run as it was measured."""

    def run(self) -> Run:
        """The run: chips, mesh, model, training, how the profile was made, unknown facts, and the facts and constraints
        that the user stated in this conversation."""
        bench, profile = self._bench, self._bench.profile
        config, chips = bench.config, bench.config.hardware.chips
        tokens, shape = config.training.global_batch_tokens, asdict(config.model) if config.model else {}
        return Run(
            experiment=bench.name, configuration=config_to_json(config),
            model_shape={key: value for key, value in shape.items() if key in _SHAPE and value},
            chips=chips, mesh_text=config.mesh.text(),
            axis_roles={axis: config.mesh.role(axis) for axis, _ in (*config.mesh.ici, *config.mesh.dcn)},
            global_batch_tokens=tokens, global_batch_tokens_over_chips=tokens / chips if tokens else None,
            not_known=missing_facts(config), stated_by_user=dict(bench.facts),
            fixed_by_user=bench.constraints.to_json(),
            profile=ProfileFacts(
                provenance=profile.provenance, label=profile.label, device=profile.device.kind,
                cores=profile.device.core_count, hosts=profile.device.host_count, steps=len(profile.steps),
                ops=len(profile.ops), omitted_ops=profile.ops_dropped,
            ),
            program=bench.diagnosis.not_modelled, warnings=bench.diagnosis.warnings,
        )  # fmt: skip

    def kpis(self) -> Kpis:
        """Figures of the profiled step: step time, shares (0 to 1) such as duty cycle, communication and MFU, breakdown
        of the step time, memory, and why a figure was not measured."""
        diagnosis, profile = self._bench.diagnosis, self._bench.profile
        peak, capacity = profile.memory.peak_bytes, profile.memory.capacity_bytes
        return Kpis(
            step_time_s=diagnosis.kpis.get("step_time_s"),
            step_time_min_s=profile.step_time_min_s,
            step_time_max_s=profile.step_time_max_s,
            step_time_stdev_s=profile.step_time_stdev_s,
            shares_0_to_1={key: value for key, value in diagnosis.kpis.items() if key != "step_time_s"},
            mfu_convention=diagnosis.mfu_convention,
            breakdown_s=diagnosis.breakdown_s,
            breakdown_share=diagnosis.breakdown_share,
            **without_profile(diagnosis),
            memory=present({"peak_bytes": peak, "capacity_bytes": capacity}),
            not_measured=diagnosis.not_measured,
        )

    def bottleneck(self) -> Verdict:
        """The verdict on what limits the step: compute, memory (HBM bandwidth), communication, input, host or idle,
        with its evidence, and the figures that pointed elsewhere."""
        verdict = self._bench.diagnosis.bottleneck
        return Verdict(
            primary=verdict.primary,
            secondary=verdict.secondary,
            confidence_share=verdict.confidence,
            statement=verdict.statement,
            contradictions=verdict.contradictions,
            evidence=tuple(evidence(item) for item in verdict.evidence),
        )

    def findings(self) -> list[FindingRow]:
        """Findings by potential saving: each with insight, action, upper bound on the saving (Amdahl; the bounds
        overlap and do not add up) and evidence."""
        return [
            FindingRow.model_validate(item).model_copy(
                update={"finding": number, "evidence": tuple(evidence(each) for each in item.evidence)}
            )
            for number, item in enumerate(self._bench.diagnosis.findings, start=1)
        ]

    def collectives(self, asked: AxisFilter) -> Collectives:
        """Communication per mesh axis and kind of collective: time, exposed time (nothing else ran), bytes per step and
        core, and achieved vs. peak link bandwidth."""
        refuse_without_profile(self._bench.diagnosis)
        collectives = list(self._bench.diagnosis.collectives)
        axes = list(dict.fromkeys(row.axis or "not matched" for row in collectives))
        if asked.axis:
            collectives = [row for row in collectives if _is_on(row.axis, asked.axis)]
            if not collectives:
                raise ToolError(f"No collective ran on {asked.axis!r}; collectives ran on {', '.join(axes) or 'none'}.")
        by_axis: dict[str, dict[str, float | None]] = {}
        by_kind: dict[str, dict[str, float | None]] = {}
        for row in collectives:
            sums = by_axis.setdefault(row.axis or "not matched", {}), by_kind.setdefault(row.kind, {})
            for total in sums:
                for key in ("time_s", "share", "exposed_s", "bytes"):
                    total[key] = _sum(total, key, getattr(row, key))
        axes_of = {
            kind: dict.fromkeys(r.axis or "not matched" for r in collectives if r.kind == kind) for kind in by_kind
        }
        kinds = [{"kind": kind, "axis": "+".join(axes_of[kind]), **total} for kind, total in by_kind.items()]
        rows = []
        for row in collectives:
            achieved, possible = row.achieved_bytes_per_s, row.possible_bytes_per_s
            share = achieved / possible if achieved and possible else None
            shown = {**vars(row), "ops": row.ops[:OPS_NAMED], "op_count": len(row.ops)}
            rows.append(CollectiveRow(**shown, achieved_of_possible_share=share))
        kpis = self._bench.diagnosis.kpis
        shares = {key: kpis.get(key) for key in kpis if key.startswith("communication")}
        return Collectives.model_validate(
            {
                "of_the_step_share": present(shares),
                "by_axis": [{"axis": axis, **total} for axis, total in by_axis.items()],
                "rows": rows,
                "axes_of_the_mesh": self._bench.config.mesh.to_json(),
                **({"by_kind": kinds} if asked.by_kind else {}),
            }
        )

    def compare(self, asked: Compared) -> Comparison:
        """Compares another experiment of the team (before) with this one (after): whether they are comparable, and
        differences in configuration, KPIs, breakdown, ops and collectives. Without an id: the list of experiments."""
        retrieval = self._bench.retrieval
        if asked.experiment is None:
            peers = retrieval.experiments(asked.name, 20)
            if not peers:
                also = f" with {asked.name!r} in its name" if asked.name else ""
                raise ToolError(f"The team has no other diagnosed experiment{also} to compare with.")
            return Comparison(experiments=tuple(peers))
        with as_tool_error():
            compared = retrieval.compare(asked.experiment)
        largest = compared.ops[: asked.top]
        return Comparison.model_validate(
            {
                "before_experiment": asked.experiment,
                "after": "this experiment",
                **vars(compared),
                "ops": [replace(op, before_ops=op.before_ops[:2], after_ops=op.after_ops[:2]) for op in largest],
                "bottleneck": dict(zip(("before", "after"), compared.bottleneck, strict=True)),
            }
        )


def evidence(item: SourcedValue) -> EvidenceRow:
    """A number of a sentence, with the first of the ops that it was computed from."""
    return EvidenceRow(**{**vars(item), "ops": item.ops[:OPS_NAMED], "op_count": len(item.ops) or None})


def _is_on(axis: Any, wanted: str) -> bool:
    names = str(axis or "not matched")
    return names == wanted or set(names.replace("+", " ").replace(",", " ").split()) == set(
        wanted.replace("+", " ").replace(",", " ").split()
    )


def _sum(total: dict[str, float | None], key: str, value: float | None) -> float | None:
    """None where any of the parts is not known."""
    if value is None:
        return None
    return value if key not in total else None if total[key] is None else (total[key] or 0.0) + value
