"""People of two teams, and an experiment of the first team at each stage of its life."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import transaction
from django.test import Client
from rest_framework.test import APIClient

from accounts.models import Membership, Role, Team, User
from diagnosis import services as diagnosis_services
from diagnosis.recording import Recording
from diagnosis.report import Bottleneck, Diagnosis, Finding, OpDiagnosis, SourcedValue
from experiments.models import Experiment, Run, RunStatus
from experiments.services import profiles, runs, uploads
from experiments.step_profile import Device, Op, Step, StepProfile
from proposals.models import PlanRecord
from proposals.plan import Citation, Plan, Predicted, ProposalPlan, Range, Rejected
from proposals.services import plans

CONFIG: dict[str, Any] = {
    "name": "llama3.1-8b on v6e-16",
    "hardware": {"chip": "v6e", "topology": [4, 4], "slices": 1},
    "mesh": {"ici": {"replica": 1, "data": 4, "seq": 4, "model": 1}, "dcn": {"data": 1}},
    "model": {"name": "llama3.1-8b"},
    "training": {"global_batch": 32, "seq_len": 8192, "precision": "bf16", "weight_sharding": "fsdp"},
}


class Reader(Client):
    """A client whose pages are read as a browser shows them: line breaks of a template are no text."""

    def request(self, **request: Any) -> Any:
        answer = super().request(**request)
        if not answer.streaming and answer.headers.get("content-type", "").startswith("text/html"):
            answer.content = _as_shown(answer.content.decode()).encode()
        return answer


def _as_shown(page: str) -> str:
    """Whitespace collapsed, and left out at both ends of an element; kept where a browser keeps it."""
    kept = re.split(r"(<(pre|textarea|script)\b.*?</\2>)", page, flags=re.S)
    parts = [(kept[at], at % 3 == 0) for at in range(len(kept)) if at % 3 != 2]
    return "".join(
        re.sub(r"(<[a-z][^<>]*>) | (?=</|>)", r"\1", re.sub(r"[ \t\r\n]+", " ", part)) if flows else part
        for part, flows in parts
    )


@dataclasses.dataclass(frozen=True)
class People:
    """Everyone who may knock: four roles in one team, a stranger in another, and somebody in no team."""

    team: Team
    engineer: User
    viewer: User
    reviewer: User
    second_reviewer: User
    administrator: User
    outsider: User
    teamless: User

    def client(self, name: str) -> Client:
        client = Reader()
        if name != "anonymous":
            client.force_login(getattr(self, name))
        return client

    def api(self, name: str) -> APIClient:
        client = APIClient()
        if name != "anonymous":
            client.force_login(getattr(self, name))
        return client


def make_people() -> People:
    team, _ = Team.objects.get_or_create(name="Pretraining")
    other, _ = Team.objects.get_or_create(name="Another team")

    def user(name: str, where: Team | None, role: Role) -> User:
        made = User.objects.create_user(username=name)
        if where is not None:
            Membership.objects.create(user=made, team=where, role=role)
        return made

    return People(
        team=team,
        engineer=user("engineer", team, Role.ENGINEER),
        viewer=user("viewer", team, Role.VIEWER),
        reviewer=user("reviewer", team, Role.REVIEWER),
        second_reviewer=user("second_reviewer", team, Role.REVIEWER),
        administrator=user("administrator", team, Role.ADMINISTRATOR),
        outsider=user("outsider", other, Role.ADMINISTRATOR),
        teamless=user("teamless", None, Role.VIEWER),
    )


def upload(name: str = "host0.xplane.pb", content: bytes = b"\x0a\x00") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content)


def step_profile(op_count: int = 3) -> StepProfile:
    """A measured profile of 16 chips whose ops share a step of 1.25 s evenly."""
    ops = tuple(
        Op(
            name=f"fusion.{n}",
            category="all-gather" if n % 3 == 1 else "convolution fusion",
            occurrences=10,
            self_time_s=1.25 / op_count,
            total_time_s=1.25 / op_count,
            time_share=1 / op_count,
            program="jit_step",
            rank=n + 1,
            hlo=f"%fusion.{n} = bf16[8,128] fusion()",
            op_name=f"jit(step)/layer_{n}/dot_general",
        )
        for n in range(op_count)
    )
    return StepProfile(
        provenance="measured",
        source_kind="xplane",
        device=Device(kind="TPU v6 lite", chip="v6e", core_count=16, host_count=2),
        step_time_s=1.25,
        steps=(Step(1, 1.25), Step(2, 1.25)),
        kpis={"duty_cycle": 0.9},
        not_measured={"memory": "the profile has no memory events"},
        ops=ops,
        converter="xprof 2.24.2",
    )


def diagnosis(profile: StepProfile) -> Diagnosis:
    axes: tuple[Any, ...] = (None, "model", ("data", "seq"))
    ops = tuple(
        OpDiagnosis(
            name=op.name,
            key=op.key,
            category=op.category,
            time_share=op.time_share,
            time_s=op.self_time_s,
            occurrences=op.occurrences,
            bound_by="Compute" if n % 2 else "HBM",
            roofline_efficiency=None if n % 5 == 0 else 0.5,
            mesh_axis=axes[n % 3],
            resource="ici" if n % 3 else "compute",
            module=f"layer_{n % 7}",
            op_name=op.op_name,
            hlo=op.hlo,
            source=op.source,
        )
        for n, op in enumerate(profile.ops)
    )
    return Diagnosis(
        kpis={"step_time_s": profile.step_time_s, "duty_cycle": 0.9, "mfu": None},
        not_measured={"mfu": "the batch is not known"},
        bottleneck=Bottleneck(
            "communication",
            0.8,
            "All-gathers take 41.6 % of the step.",
            (SourcedValue("share", 0.416, "share", "measured"),),
        ),
        findings=(
            Finding("exposed_collectives", "Exposed all-gathers", "They wait.", "Overlap them.", "At most 0.52 s."),
        ),
        ops=ops,
        breakdown_s={"compute": 0.73, "ici:data": 0.52},
        recording=Recording(
            steps=len(profile.steps), devices=profile.device.measured_cores, device=profile.device.kind
        ),
    )


def plan(config: dict[str, Any] = CONFIG) -> Plan:
    """Three proposals on 16 chips that are legal and fit."""
    baseline = Predicted(step_time_s=Range(estimate=1.25, low80=1.25, high80=1.25))

    def proposal(rank: int, kind: str, ici: dict[str, int], step_s: float) -> ProposalPlan:
        return ProposalPlan(
            rank=rank,
            kind=kind,
            title=f"{kind.title()}: " + " · ".join(f"{a} {n}" for a, n in ici.items()),
            mesh={"ici": ici, "dcn": {"data": 1}},
            changes={},
            predicted=Predicted(
                step_time_s=Range(
                    lower=0.8 * step_s, estimate=step_s, upper=1.3 * step_s, low80=0.9 * step_s, high80=1.1 * step_s
                ),
                speedup=1.25 / step_s,
            ),
            confidence=0.7,
            reasoning=("All-gathers take 41.6 % of the step.", "A smaller axis moves fewer bytes."),
            expected_impact=(f"The step takes {step_s:.2f} s instead of 1.25 s.",),
            trade_offs=("More memory per chip.",),
            citations=(Citation("book", "5.2", "Fully sharded data parallelism"),),
        )  # fmt: skip

    return Plan(
        baseline=baseline,
        proposals=(
            proposal(1, "recommendation", {"replica": 1, "data": 16, "seq": 1, "model": 1}, 1.0),
            proposal(2, "safer", {"replica": 1, "data": 8, "seq": 2, "model": 1}, 1.1),
            proposal(3, "bolder", {"replica": 1, "data": 8, "seq": 1, "model": 2}, 0.9),
        ),
        rejected=(Rejected({"ici": {"model": 16}, "dcn": {}}, "divisibility", "8 kv heads are not divisible by 16"),),
        considered=120,
    )


@dataclasses.dataclass(frozen=True)
class Stored:
    experiment: Experiment
    run: Run
    plan: PlanRecord


def make_experiment(people: People, name: str = "baseline", config: bool = True) -> Experiment:
    return uploads.receive(people.team, people.engineer, [upload()], json.dumps(CONFIG) if config else None, name)


def make_ready(people: People, name: str = "baseline", op_count: int = 3, profile: StepProfile | None = None) -> Stored:
    """An experiment as the Coordinator leaves it, stored by the services it uses."""
    experiment = make_experiment(people, name)
    run = runs.newest(experiment)
    assert run is not None
    value = profile or step_profile(op_count)
    for old, new in (
        (RunStatus.UPLOADED, RunStatus.INGESTING),
        (RunStatus.INGESTING, RunStatus.DIAGNOSING),
        (RunStatus.DIAGNOSING, RunStatus.PROPOSING),
        (RunStatus.PROPOSING, RunStatus.CHECKING),
        (RunStatus.CHECKING, RunStatus.READY),
    ):
        assert runs.move(run, old, new, actor="coordinator")
        if new == RunStatus.DIAGNOSING:
            with transaction.atomic():
                profiles.store(run.profile, value, profiles.write(run, value))
        if new == RunStatus.PROPOSING:
            diagnosis_services.store(run, diagnosis(value))
        if new == RunStatus.CHECKING:
            plans.store(run, plan())
    experiment.refresh_from_db()
    record = plans.newest(experiment)
    assert record is not None
    return Stored(experiment, run, record)
