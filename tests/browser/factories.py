"""People of two teams and experiments in every state, stored by the services that the application uses.

The numbers hang together: terms add up to the step, ops to their terms, parts to the memory, meshes to the chips.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import transaction

from accounts.models import Membership, Role, Team, User
from diagnosis import services as diagnosis_services
from diagnosis.report import Bottleneck, Diagnosis, Finding, OpDiagnosis, SourcedValue
from experiments.models import Experiment, Run, RunStatus
from experiments.sentences import Value, say
from experiments.services import events, profiles, runs, uploads
from experiments.step_profile import Device, Note, Op, SourceFile, Step, StepProfile
from proposals.plan import Citation, Memory, Plan, Predicted, ProposalPlan, Range, Rejected
from proposals.services import plans

CONFIG: dict[str, Any] = {
    "name": "dense 30b on v5p-64",
    "hardware": {"chip": "v5p", "topology": [4, 4, 4], "slices": 1},
    "mesh": {"ici": {"replica": 1, "data": 4, "seq": 2, "model": 8}, "dcn": {"data": 1}},
    "model": {
        "layers": 48, "d_model": 6144, "d_ff": 24576, "heads": 48, "kv_heads": 8, "head_dim": 128, "vocab": 64000,
    },
    "training": {"global_batch": 64, "seq_len": 4096, "precision": "bf16", "weight_sharding": "fsdp"},
}  # fmt: skip
STEP_S = 1.84
BREAKDOWN_S = {
    "compute": 0.81, "hbm": 0.22, "ici:model": 0.52, "ici:seq": 0.09, "ici:data": 0.13, "idle": 0.07,
}  # fmt: skip

#: Text that a hostile program puts into its profile; every page must show it, none may run it.
HOSTILE = "<img src=x onerror=alert(1)>.7"

#: name, category, seconds per step, resource, axis, collective, module, bound by
_OPS: tuple[tuple[str, str, float, str, Any, str | None, str, str], ...] = (
    ("all-reduce.41", "all-reduce", 0.31, "ici", "model", "all-reduce", "mlp", "HBM"),
    ("fusion.812", "convolution fusion", 0.29, "compute", None, None, "mlp", "Compute"),
    ("fusion.815", "convolution fusion", 0.24, "compute", None, None, "mlp", "Compute"),
    ("reduce-scatter.9", "reduce-scatter", 0.21, "ici", "model", "reduce-scatter", "attention", "HBM"),
    ("custom-call.3", "flash attention", 0.18, "compute", None, None, "attention", "Compute"),
    ("all-gather.17", "all-gather", 0.13, "ici", "data", "all-gather", "mlp", "HBM"),
    ("fusion.77", "loop fusion", 0.12, "hbm", None, None, "norm", "HBM"),
    ("fusion.101", "convolution fusion", 0.10, "compute", None, None, "attention", "Compute"),
    ("fusion.78", "loop fusion", 0.10, "hbm", None, None, "optimizer", "HBM"),
    ("collective-permute.5", "collective-permute", 0.09, "ici", "seq", "collective-permute", "attention", "HBM"),
)


@dataclass(frozen=True)
class People:
    """Four roles in one team, and the administrator of another."""

    team: Team
    viewer: User
    engineer: User
    reviewer: User
    administrator: User
    outsider: User


def make_people(team_name: str) -> People:
    team = Team.objects.create(name=team_name)
    other = Team.objects.create(name=f"{team_name}, another one")

    def user(name: str, where: Team, role: Role) -> User:
        made = User.objects.create_user(f"{team_name}-{name}".lower().replace(" ", "-"), first_name=name.capitalize())
        Membership.objects.create(user=made, team=where, role=role)
        return made

    return People(
        team,
        user("viewer", team, Role.VIEWER),
        user("engineer", team, Role.ENGINEER),
        user("reviewer", team, Role.REVIEWER),
        user("administrator", team, Role.ADMINISTRATOR),
        user("outsider", other, Role.ADMINISTRATOR),
    )


def step_profile(extra_ops: int = 40) -> StepProfile:
    """64 chips, three steps, the ops above and many small ones that share the rest of compute and HBM time."""
    ops = [
        Op(
            name=name, category=category, occurrences=144, self_time_s=seconds * 64 * 3, total_time_s=seconds * 64 * 3,
            time_share=seconds / STEP_S, program="jit_step", rank=rank, bound_by=bound,
            hlo=f"%{name} = bf16[8,4096,6144]{{2,1,0}} fusion(bf16[8,4096,768]{{2,1,0}} %p.1)",
            op_name=f"jit(train_step)/transpose(jvp(layer))/{module}/dot_general", source="model.py:81",
        )
        for rank, (name, category, seconds, _, _, _, module, bound) in enumerate(_OPS, start=1)
    ]  # fmt: skip
    ops += [
        Op(
            name=HOSTILE if n == 0 else f"copy.{n}", category="copy", occurrences=3, self_time_s=0.01,
            total_time_s=0.01, time_share=0.0, program="jit_step", rank=len(_OPS) + 1 + n, bound_by="HBM",
            hlo="<script>alert(2)</script>", op_name="jit(train_step)/</script><b>copy</b>", source="model.py:9",
        )
        for n in range(extra_ops)
    ]  # fmt: skip
    return StepProfile(
        provenance="measured",
        source_kind="xplane",
        device=Device(kind="TPU v5p", chip="v5p", core_count=64, host_count=16),
        files=(SourceFile("host0.xplane.pb", "host0", 2, "0" * 64),),
        step_time_s=STEP_S,
        step_time_min_s=1.82,
        step_time_max_s=1.87,
        steps=tuple(Step(number, STEP_S) for number in (1, 2, 3)),
        kpis={"duty_cycle": 0.962, "idle": 0.038, "communication": 0.402},
        not_measured={"memory": "the profile has no memory events"},
        ops=tuple(ops),
        notes=(Note("warning", "Host 7 recorded two steps, the others three."),),
        converter="xprof 2.24.2",
    )


def diagnosis(profile: StepProfile) -> Diagnosis:
    facts = {name: rest for name, *rest in _OPS}
    ops = []
    for op in profile.ops:
        known = facts.get(op.name)
        seconds, resource, axis, collective, module = (
            (known[1], known[2], known[3], known[4], known[5]) if known else (0.0001, "hbm", None, None, "")
        )
        product = resource == "compute"
        ops.append(
            OpDiagnosis(
                name=op.name, key=op.key, category=op.category, time_share=seconds / STEP_S, time_s=seconds,
                occurrences=op.occurrences, bound_by=op.bound_by, roofline_efficiency=0.61 if product else 0.08,
                mesh_axis=axis, collective=collective, participants=8 if axis == "model" else None,
                collective_bytes=1.2e8 if collective else None,
                achieved_bytes_per_s=58e9 if collective else None, possible_bytes_per_s=90e9 if collective else None,
                flops_per_s=2.6e14 if product else 3e11, hbm_bytes_per_s=4e11,
                operational_intensity=650.0 if product else 0.75, resource=resource, module=module, source=op.source,
                op_name=op.op_name, hlo=op.hlo,
            )
        )  # fmt: skip
    model_ops = tuple(op.key for op in ops if op.mesh_axis == "model")
    on_model = SourcedValue("on the model axis", 0.52, "s", "measured", "sum of self times", ops=model_ops)
    links = SourcedValue("links used of the model axis", 0.644, "share", "computed", "58 GB/s ÷ 90 GB/s")
    comms = 0.52 + 0.09 + 0.13
    return Diagnosis(
        kpis={
            "step_time_s": STEP_S, "duty_cycle": 0.962, "idle": 0.038, "communication": comms / STEP_S, "input": 0.0,
            "hbm_utilization": 0.21, "flops_utilization": 0.352, "mfu": 0.334, "goodput": None,
        },
        not_measured={"goodput": "the window holds three steps only"},
        bottleneck=Bottleneck(
            "communication",
            0.86,
            say(
                "Collectives take {} of every {} step, {} of it on the `model` axis.",
                SourcedValue("collectives per step", comms, "s", "measured", "sum of self times", "host0.xplane.pb"),
                SourcedValue("step time", STEP_S, "s", "measured", "mean of three steps"),
                on_model,
            ),
            (links,),
            (say("Duty cycle is {}, but a core that waits for a collective counts as busy.",
                 SourcedValue("duty cycle", 0.962, "share", "measured")),),
            "compute",
        ).numbered(),
        findings=(
            Finding(
                "tensor_parallel_communication", "Tensor parallelism on `model` costs 520 ms",
                say("Its collectives take {} per step and reach {} of what the links give.", on_model, links),
                "Halve `model` and double `data`.", say("At most {} of the step.", on_model), (on_model, links),
                0.52, 0.52 / STEP_S, "model",
            ).numbered("finding-0"),
            Finding("exposed_gathers", "Weight gathers are not hidden", "They take 130 ms.", "Overlap them.",
                    "At most 130 ms.", (SourcedValue("gathers", 0.13, "s", "measured"),), 0.13, 0.13 / STEP_S, "data"),
        ),
        ops=tuple(ops),
        breakdown_s=BREAKDOWN_S,
        collectives=(
            _collective("model", "all-reduce", 0.31, 58e9, 90e9, "jit_step/all-reduce.41"),
            _collective("model", "reduce-scatter", 0.21, 61e9, 90e9, "jit_step/reduce-scatter.9"),
            _collective("data", "all-gather", 0.13, 72e9, 180e9, "jit_step/all-gather.17"),
            _collective("seq", "collective-permute", 0.09, None, 90e9, "jit_step/collective-permute.5"),
        ),
        roofline={"peak_flops_per_s": 459e12, "peak_hbm_bytes_per_s": 2.765e12},
        mfu_convention="model FLOPs, causal attention, nothing recomputed",
        report={
            "Experiment details": ["Hardware: v5p, 4×4×4."],
            "KPIs and initial hypothesis": [
                say("Duty cycle: {}.", Value("duty cycle", 0.962, "share", "measured", field="kpi-duty_cycle")),
                "Initial hypothesis: the device is busy.",
            ],
            "Ops and roofline": ["By module: mlp 45.7 %, attention 31.5 % of device time."],
            "Correlation and structured analysis": ["Collectives take 740 ms of every 1,840 ms step."],
        },
        timeline=_timeline(),
        warnings=("The profile has no memory events, so the memory peak is not measured.",),
    )  # fmt: skip


def _timeline() -> dict[str, Any]:
    """Four cores by three steps; the last core works longer, the others wait for it in collectives."""
    work = [[0.86, 0.85, 0.86]] * 3 + [[1.02, 1.01, 1.03]]
    whole = [[1.84, 1.82, 1.86]] * 4
    return {
        "cores": [f"TPU:{n}" for n in range(4)], "hosts": ["host0", "host0", "host1", "host1"], "steps": [7, 8, 9],
        "durations_s": whole, "cores_total": 64, "steps_total": 3,
        "parts_s": {
            "compute": work,
            "collective": [[t - w for t, w in zip(*rows, strict=True)] for rows in zip(whole, work, strict=True)],
        },
    }  # fmt: skip


def _collective(
    axis: str, kind: str, time_s: float, achieved: float | None, possible: float, op: str
) -> dict[str, Any]:
    return {
        "axis": axis, "kind": kind, "time_s": time_s, "share": time_s / STEP_S, "bytes": 1.2e8,
        "achieved_bytes_per_s": achieved, "possible_bytes_per_s": possible, "ops": [op],
        "in_flight_s": time_s, "exposed_s": time_s * 0.75, "hidden_share": 0.25,
    }  # fmt: skip


def _hbm(params: float, gradients: float, optimizer: float, activations: float) -> Memory:
    parts = {"params": params, "gradients": gradients, "optimizer": optimizer, "activations": activations}
    return Memory(**{k: v * 1e9 for k, v in parts.items()}, total=sum(parts.values()) * 1e9, capacity=95e9)


def plan() -> Plan:
    """A mesh change, a change of flags only, and one with twice the batch."""

    def predicted(breakdown: dict[str, float], hbm: Memory, per: float = 1.0) -> Predicted:
        total = sum(breakdown.values())
        factors = {"lower": 0.8, "estimate": 1.0, "upper": 1.4, "low80": 0.9, "high80": 1.13}
        time = Range(**{key: factor * total for key, factor in factors.items()})
        gain = STEP_S / total * per
        return Predicted(time, gain, gain / 1.13, gain / 0.9, hbm, breakdown)

    def proposal(
        rank: int, kind: str, title: str, ici: dict[str, int], changes: dict[str, Any], p: Predicted, sure: float
    ) -> ProposalPlan:
        return ProposalPlan(
            rank, kind, title, {"ici": ici, "dcn": {"data": 1}}, changes, p, sure,
            ("The model axis takes 28.3 % of the step.", "With rings of 4 its traffic falls to less than half."),
            ("The model axis falls from 520 ms to 230 ms.",), ("More memory per chip for weights.",),
            (
                Citation(
                    "book", "5.4", "Tensor parallelism", "A ring of `n` moves (n − 1)/n of the tensor per chip.",
                    "https://jax-ml.github.io/scaling-book/training",
                ),
                Citation("profile", "", "Collectives per axis"),
            ),
            ("One step from what was measured.",), ("Overlap was not measured.",), ("tensor_parallel_communication",),
        )  # fmt: skip

    halved = {"compute": 0.79, "hbm": 0.22, "ici:model": 0.23, "ici:seq": 0.09, "ici:data": 0.18, "idle": 0.07}
    hidden = {"compute": 0.81, "hbm": 0.22, "ici:model": 0.44, "ici:seq": 0.06, "ici:data": 0.06, "idle": 0.07}
    bolder = {"compute": 1.58, "hbm": 0.42, "ici:seq": 0.18, "ici:data": 0.52, "idle": 0.07}
    now = Range(estimate=1.8, low80=1.7, high80=1.95)
    flags = {"xla_flags": ["--xla_tpu_enable_async_collective_fusion=true"]}
    return Plan(
        baseline=Predicted(now, 1.0, None, None, _hbm(1.9, 1.9, 5.7, 14.0), {}),
        proposals=(
            proposal(
                1, "recommendation", "Halve tensor parallelism, double data parallelism",
                {"replica": 1, "data": 8, "seq": 2, "model": 4}, {}, predicted(halved, _hbm(1.9, 1.9, 5.7, 21.0)), 0.87,
            ),
            proposal(
                2, "safer", "Keep the mesh, overlap communication with compute",
                {"replica": 1, "data": 4, "seq": 2, "model": 8}, flags,
                predicted(hidden, _hbm(1.9, 1.9, 5.7, 14.5)), 0.91,
            ),
            proposal(
                3, "bolder", "No tensor parallelism, twice the batch",
                {"replica": 1, "data": 32, "seq": 2, "model": 1}, {"global_batch": 128},
                predicted(bolder, _hbm(1.9, 1.9, 5.7, 62.0), 2.0), 0.58,
            ),
        ),
        rejected=tuple(
            Rejected(
                {"ici": {"data": 64 // m, "model": m}, "dcn": {}}, "kv heads", f"8 KV heads are not divisible by {m}."
            )
            for m in (16, 32, 64)
        ),
        considered=74,
    )  # fmt: skip


def upload(name: str = "host0.xplane.pb", content: bytes = b"\x0a\x00") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content)


def make_experiment(people: People, name: str, config: bool = True, files: int = 1) -> tuple[Experiment, Run]:
    text = json.dumps({**CONFIG, "name": name}) if config else None
    sent = [upload(f"host{n}.xplane.pb") for n in range(files)]
    experiment = uploads.receive(people.team, people.engineer, sent, text, name)
    run = runs.newest(experiment)
    assert run is not None
    return experiment, run


def advance(run: Run, to: RunStatus) -> None:
    """Take the run on, storing what each stage stores, until it is in `to`."""
    value = step_profile()
    order = [
        RunStatus.UPLOADED, RunStatus.INGESTING, RunStatus.DIAGNOSING, RunStatus.PROPOSING, RunStatus.CHECKING,
        RunStatus.READY,
    ]  # fmt: skip
    for old, new in pairwise(order):
        if order.index(RunStatus(run.status)) > order.index(old):
            continue
        if run.status == to:
            return
        if old == RunStatus.INGESTING:
            with transaction.atomic():
                profiles.store(run.profile, value, profiles.write(run, value))
        if old == RunStatus.DIAGNOSING:
            diagnosis_services.store(run, diagnosis(value))
        if old == RunStatus.PROPOSING:
            plans.store(run, plan())
        assert runs.move(run, old, new, actor="coordinator", took_s=0.4)


def make_ready(people: People, name: str) -> Experiment:
    experiment, run = make_experiment(people, name)
    advance(run, RunStatus.READY)
    experiment.refresh_from_db()
    return experiment


def make_working(people: People, name: str) -> tuple[Experiment, Run]:
    experiment, run = make_experiment(people, name)
    advance(run, RunStatus.INGESTING)
    events.progress(run, "Converting host 1 of 1", fraction=0.38)
    return experiment, run


def make_configuring(people: People, name: str) -> tuple[Experiment, Run]:
    experiment, run = make_experiment(people, name, config=False)
    assert runs.move(run, RunStatus.UPLOADED, RunStatus.INGESTING, actor="coordinator")
    value = step_profile()
    with transaction.atomic():
        profiles.store(run.profile, value, profiles.write(run, value))
    assert runs.move(run, RunStatus.INGESTING, RunStatus.CONFIGURING, actor="coordinator")
    return experiment, run
