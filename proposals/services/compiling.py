"""Compile checks of a plan: queued with it where the compiler is installed, at most two at a time, cancelled by people.

The answer is kept by content (`proposals.compiling.cache`), so that the same configuration is compiled once.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.models import Role, User
from accounts.permissions import check
from accounts.refusals import Refused
from experiments.services import configuration
from formatting.text import clean, clean_json
from jobs.declared import DIALOGUE_QUEUE
from jobs.jobs import Jobs
from perfmodel.config import ExperimentConfig, framework_of
from perfmodel.execution import compiled_by_xla
from proposals.compiling import engine, targets
from proposals.compiling.cache import Cache
from proposals.compiling.compiler_flags import refused_flag
from proposals.compiling.result import CHECK, CompileCheck
from proposals.models import Compilation, PlanRecord, Proposal
from proposals.services import unmeasured

#: Each takes 2 GB and more than one core.
MOST_AT_ONCE = 2
OPEN = (Compilation.Status.QUEUED, Compilation.Status.WORKING)
#: A thread only waits for the compiler's process, so the worker is the one of the dialogue.
COMPILATIONS = Jobs(
    Compilation, OPEN, Compilation.Status.WORKING, queue=DIALOGUE_QUEUE, team="team", max_at_once=MOST_AT_ONCE
)


class CompilingError(Refused):
    """Nothing can be compiled."""


class Stopped(Exception):
    """Somebody cancelled it, or another worker has it."""


def worker_module() -> str:
    """The module that compiles: the one of the product, or what the settings name."""
    named: str = settings.COMPILE_WORKER or engine.WORKER
    return named


def cache() -> Cache:
    """Answers of the compiler, in the data folder."""
    return Cache(Path(settings.ASAP_HOME) / "compile")


def missing(config: ExperimentConfig | None) -> str | None:
    """Why a configuration cannot be checked here, in one sentence; None where it can."""
    if config is None:
        return "The configuration that the plan was priced with is no longer valid."
    if config.model is None or config.training.global_batch is None or config.training.seq_len is None:
        return "A compile check needs the model, the batch and the sequence length in the configuration."
    framework = framework_of(config)
    if not compiled_by_xla(framework):
        return f"The compile check is for programs that XLA compiles; this run trains with {framework}."
    target = targets.target(config.hardware)
    if isinstance(target, str):
        return target
    if worker_module() == engine.WORKER and not targets.installed(target.platform):
        return targets.not_installed(target.platform)
    return refused_flag(config.training.xla_flags, target.platform)


def config_of(plan: PlanRecord, proposal: Proposal | None) -> ExperimentConfig | None:
    """What is compiled: the plan's baseline, or a proposal of it."""
    if proposal is not None:
        return unmeasured.proposed(proposal)
    return configuration.check(plan.priced_with).config if plan.priced_with else None


def on_ready(plan: PlanRecord) -> list[Compilation]:
    """Queue the checks of a new plan, where they can be done here.  Samples are checked only when somebody asks."""
    if not settings.COMPILE_AUTO or plan.run.experiment.sample or missing(config_of(plan, None)) is not None:
        return []
    return _queue(plan, None)


def request(plan: PlanRecord, user: User) -> list[Compilation]:
    """Check baseline and proposals of a plan, but for those that are being checked.

    Raises CompilingError with the reason; Http404 and PermissionDenied below engineer.
    """
    check(user, plan, Role.ENGINEER)
    reason = missing(config_of(plan, None))
    if reason is not None:
        raise CompilingError(reason)
    made = _queue(plan, user)
    if not made:
        raise CompilingError("The compiler is already working on this plan; wait until it is done, or cancel it.")
    return made


def cancel(plan: PlanRecord, user: User) -> int:
    """Stop whatever of the plan waits or is being compiled; how many.  Http404 and PermissionDenied below engineer."""
    check(user, plan, Role.ENGINEER)
    open_rows = Compilation.objects.filter(plan=plan, status__in=OPEN)
    return open_rows.update(status=Compilation.Status.CANCELLED, finished_at=timezone.now())


def of_plan(plan: PlanRecord) -> dict[int | None, Compilation]:
    """The newest check of the baseline (key None) and of each proposal, by its key."""
    newest: dict[int | None, Compilation] = {}
    for row in Compilation.objects.filter(plan=plan).select_related("proposal", "plan").order_by("-pk"):
        newest.setdefault(row.proposal_id, row)
    return newest


def of_proposal(proposal: Proposal) -> CompileCheck | None:
    """What the newest finished check of a proposal says; None where there is none."""
    done = Compilation.objects.filter(proposal=proposal, status=Compilation.Status.DONE).order_by("-pk").first()
    return done.value if done is not None else None


def _queue(plan: PlanRecord, user: User | None) -> list[Compilation]:
    made = []
    for proposal in [None, *plan.proposals.exclude(kind="keep").order_by("rank")]:
        try:
            with transaction.atomic():
                row = Compilation.objects.create(team_id=plan.team_id, plan=plan, proposal=proposal, created_by=user)
                COMPILATIONS.enqueue(row.pk)
        except IntegrityError:  # one of it is open
            continue
        made.append(row)
    return made


def compile_one(pk: int) -> None:
    """Do one check; returns at once where it has ended or a live worker has it."""
    made = COMPILATIONS.take(pk, _fail, "plan", "proposal")
    if made is None:
        return
    with COMPILATIONS.doing(made, _fail), suppress(Stopped):
        _work(made)


def _work(made: Compilation) -> None:
    config = config_of(made.plan, made.proposal)
    reason = missing(config)
    if config is None or reason is not None:
        _fail(made, reason or "")
        return

    def progress(effort: str, stage: str) -> None:
        text = stage if effort == "quick" else f"{stage}, {effort} effort"
        if not COMPILATIONS.row_of_worker(made.pk, made.worker).update(stage=text):
            raise Stopped

    check = engine.check(config, cache=cache(), on_progress=progress, worker=worker_module())
    _end(made, Compilation.Status.DONE, result=clean_json(CHECK.write(check)))


def _fail(made: Compilation, note: str) -> None:
    _end(made, Compilation.Status.FAILED, note=clean(note))


def _end(made: Compilation, status: Compilation.Status, **values: object) -> None:
    rows = COMPILATIONS.row_of_worker(made.pk, made.worker)
    rows.update(status=status, stage="", finished_at=timezone.now(), **values)
