"""The measured loop: an approved proposal is run, its profile is uploaded, and prediction is compared with measurement.

A run is linked to the proposal by a person: by uploading it from the proposal, or by confirming that an experiment with
the proposed configuration is the one.  Once its analysis is ready the measurement is made by itself; doing it again
changes nothing, so any worker may.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from math import log
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts.models import Role, Team, User
from accounts.permissions import check
from accounts.refusals import Refused
from diagnosis import comparing
from diagnosis.models import DiagnosisRecord
from experiments.models import Experiment, Origin, Run, RunStatus
from experiments.services import against_profile, configuration, events, secrets
from formatting.text import clean
from history.record import FAILURES, outcome_of
from proposals.candidate import chips_ratio
from proposals.control_arm import NO_DIFFERENCE, VERDICT, Verdict
from proposals.failures import Failure
from proposals.matching import Match, token_ratio
from proposals.models import FAILURE_WORDS, Measurement, Proposal
from proposals.services import learning, unmeasured
from proposals.services.compared import Compared

logger = logging.getLogger(__name__)

MAX_COMMENT = 10_000


class MeasureError(Refused):
    """This run does not measure this proposal."""


def results(teams: Team | list[int]) -> QuerySet[Measurement]:
    """What was measured of the teams' proposals, failures included, newest first."""
    ids = [teams.pk] if isinstance(teams, Team) else teams
    done = [Measurement.Status.MEASURED, Measurement.Status.FAILED]
    measurements = Measurement.objects.filter(team_id__in=ids, status__in=done)
    return measurements.select_related("proposal__experiment", "experiment", "created_by").order_by(
        "-measured_at", "-pk"
    )


def has_result(proposal: Proposal) -> bool:
    done = [Measurement.Status.MEASURED, Measurement.Status.FAILED]
    return Measurement.objects.filter(proposal=proposal, status__in=done).exists()


def link(
    proposal: Proposal, experiment: Experiment, user: User, *, control: dict[str, Any] | None = None
) -> Measurement:
    """Count the experiment as the run of an approved proposal; measured at once where its analysis is ready.

    control: `proposals.control_arm.Verdict.to_json`, where both arms ran in one wave; the speed-up is then theirs.

    Raises MeasureError where the proposal is not approved or has its result, or the two runs do not compare; Http404
    and PermissionDenied as for any change by an engineer.
    """
    _may(proposal, experiment, user)
    must_await_result(proposal)
    if experiment.pk == proposal.experiment_id:
        raise MeasureError("That is the baseline run of this proposal; upload the profile of the changed run.")
    if (fit := unmeasured.compared_with(proposal, experiment)) is not None and not fit.is_same_configuration:
        raise MeasureError(f"{experiment.name} is not a run of this proposal: {' '.join(fit.departures)}")
    run = _ready_run(experiment)
    if run is not None:
        compare(proposal, run)
    with transaction.atomic():
        _lock(proposal.experiment_id, experiment.pk)
        Measurement.objects.filter(proposal=proposal).filter(
            Q(status=Measurement.Status.REFUSED) | Q(experiment=None, status=Measurement.Status.LINKED)
        ).delete()
        made, new = Measurement.objects.get_or_create(
            proposal=proposal,
            defaults={
                "team_id": proposal.team_id, "experiment": experiment, "created_by": user, "control": control or {},
            },
        )  # fmt: skip
        if not new and made.experiment_id != experiment.pk:
            other = made.experiment.name if made.experiment is not None else "another run"
            raise MeasureError(f"{other} already counts as the run of this proposal.")
        if new:
            data = {"proposal": proposal.pk, "rank": proposal.rank, "title": proposal.title}
            for place, more in (
                (proposal.experiment_id, {"by": experiment.pk, "name": experiment.name}),
                (experiment.pk, {"of": proposal.experiment_id, "name": proposal.experiment.name}),
            ):
                events.append(place, "measurement", "user", user=user, data={"linked": True, **data, **more})
    if run is not None:
        complete(made.pk)
        made.refresh_from_db()
    return made


def unlink(proposal: Proposal, user: User) -> None:
    """Take back a link that has no result yet.  Raises MeasureError where it has one."""
    check(user, proposal, Role.ENGINEER)
    open_ = [Measurement.Status.LINKED, Measurement.Status.REFUSED]
    with transaction.atomic():
        events.lock(proposal.experiment_id)
        gone, _ = Measurement.objects.filter(proposal=proposal, status__in=open_).delete()
        if not gone:
            raise MeasureError("This proposal already has a result, or no run is linked to it.")
        events.append(
            proposal.experiment_id, "measurement", "user", user=user, data={"unlinked": True, "proposal": proposal.pk}
        )


def report_failure(
    proposal: Proposal,
    user: User,
    failure: str,
    comment: str = "",
    analysed: Failure | None = None,
    analysis: dict[str, Any] | None = None,
) -> Measurement:
    """Say that the proposed configuration did not run.  Kept in the history: failures teach as much.

    found: the cause in its log, which counts where no failure is given; analysis: the same as it was stored.  Raises
    MeasureError where the proposal is not approved, has a result, or the failure is none of FAILURES.
    """
    check(user, proposal, Role.ENGINEER)
    must_await_result(proposal)
    failure = failure or (analysed.history if analysed is not None else "")
    if failure not in FAILURES:
        words = ", ".join(word.lower() for word in FAILURE_WORDS.values())
        raise MeasureError(f"Give the log, or choose the failure: {words}.")
    said = analysed.to_json() if analysed is not None else analysis or {}
    comment = secrets.redact(clean(comment.strip()))  # it may be the log itself
    if len(comment) > MAX_COMMENT:
        raise MeasureError(f"A comment has at most {MAX_COMMENT:,} characters.")
    with transaction.atomic():
        events.lock(proposal.experiment_id)
        Measurement.objects.filter(
            proposal=proposal, status__in=[Measurement.Status.LINKED, Measurement.Status.REFUSED]
        ).delete()
        made, new = Measurement.objects.get_or_create(
            proposal=proposal,
            defaults={
                "team_id": proposal.team_id, "status": Measurement.Status.FAILED, "outcome": "failed",
                "failure": failure, "comment": comment, "created_by": user, "measured_at": timezone.now(),
                "analysis": said,
                "before_step_time_s": proposal.plan.run.profile.step_time_s, **_prediction_at_approval(proposal),
            },
        )  # fmt: skip
        if not new:
            raise MeasureError("This proposal already has a result.")
        made.record = learning.keep_failure(made, unmeasured.before_config(proposal), unmeasured.proposed(proposal))
        made.save(update_fields=["record"])
        events.append(
            proposal.experiment_id, "measurement", "user", run=proposal.plan.run, user=user,
            data={"proposal": proposal.pk, "rank": proposal.rank, "title": proposal.title, "outcome": "failed",
                  "failure": failure, "comment": comment, "cause": said.get("cause", "")},
        )  # fmt: skip
    return made


def on_ready(run: Run) -> None:
    """Measure whatever waits for this run; a fault of ours is loud and never fails the run."""
    _complete_all(experiment_id=run.experiment_id)


def sweep() -> list[int]:
    """Measure what a dead worker left: linked, and its run has been ready.  Returns the measurements looked at."""
    return _complete_all(experiment__state=RunStatus.READY)


def _complete_all(**of: Any) -> list[int]:
    linked = list(Measurement.objects.filter(status=Measurement.Status.LINKED, **of).values_list("pk", flat=True))
    for pk in linked:
        try:
            complete(pk)
        except Exception:
            logger.exception("measurement %s could not be made", pk)
    return linked


def complete(pk: int) -> bool:
    """Set measurement beside prediction, with its Events and history record; False where it is done or not ready."""
    made = Measurement.objects.select_related(*(f"proposal__{name}" for name in unmeasured.WITH[:2]), "experiment").get(
        pk=pk
    )
    run = _ready_run(made.experiment) if made.experiment is not None else None
    if made.status != Measurement.Status.LINKED or run is None:
        return False
    proposal = made.proposal
    try:
        compared = compare(proposal, run)
    except MeasureError as error:
        return _finish(made, run, {"status": Measurement.Status.REFUSED, "reason": str(error), "run": run}, None)
    if made.control.get("speedup"):
        compared = against_control(compared, VERDICT.read(made.control))
    reach = range80(made)
    values = {
        "status": Measurement.Status.MEASURED,
        "run": run,
        "outcome": _outcome(made, compared.speedup),
        "before_step_time_s": compared.before_s,
        "after_step_time_s": compared.after_s,
        "speedup": compared.speedup,
        "within_range": reach[0] <= compared.speedup <= reach[1] if reach else None,
        "caveats": list(compared.caveats),
        "measured_at": timezone.now(),
        **_prediction_at_approval(proposal),
    }
    return _finish(made, run, values, compared)


def against_control(compared: Compared, verdict: Verdict) -> Compared:
    """The same two runs, with the times and the speed-up of both arms of the wave: the profile before may be of another
    day, and one profile of each is two single numbers."""
    assert verdict.speedup is not None and verdict.control.median_s and verdict.proposal.median_s
    dropped = ("The difference is within the variation", "Only the step time of")
    caveats = [line for line in compared.caveats if not line.startswith(dropped)]
    if verdict.outcome == NO_DIFFERENCE:
        caveats.append(verdict.sentence)
    return replace(
        compared, before_s=verdict.control.median_s, after_s=verdict.proposal.median_s, speedup=verdict.speedup,
        caveats=(*caveats, *verdict.missing),
    )  # fmt: skip


def _finish(made: Measurement, run: Run, values: dict[str, Any], compared: Compared | None) -> bool:
    proposal = made.proposal
    assert made.experiment is not None
    with transaction.atomic():
        _lock(proposal.experiment_id, made.experiment.pk)
        won = Measurement.objects.filter(pk=made.pk, status=Measurement.Status.LINKED).update(**values)
        if not won:
            return False
        made.refresh_from_db()
        if compared is not None:
            made.record = learning.keep(made, compared)
            made.save(update_fields=["record"])
        data = {
            "proposal": proposal.pk, "rank": proposal.rank, "title": proposal.title, "status": made.status,
            "outcome": made.outcome, "speedup": made.speedup, "predicted_speedup": made.predicted_speedup,
            "error": made.error, "within_range": made.within_range, "reason": made.reason, "caveats": made.caveats,
            "record": made.record,
        }  # fmt: skip
        for place, its_run, more in (
            (proposal.experiment_id, proposal.plan.run, {"by": made.experiment.pk, "name": made.experiment.name}),
            (made.experiment.pk, run, {"of": proposal.experiment_id, "name": proposal.experiment.name}),
        ):
            events.append(place, "measurement", "coordinator", run=its_run, data={**data, **more})
    return True


def compare(proposal: Proposal, run: Run) -> Compared:
    """The proposal's own run beside the run of its configuration, per token.  Raises MeasureError with a sentence."""
    stored = DiagnosisRecord.objects.select_related("run__profile", "run__experiment")
    before = stored.filter(run_id=proposal.plan.run_id).first()
    after = stored.filter(run=run).first()
    one, two = unmeasured.before_config(proposal), configuration.load(run.experiment)
    if before is None or after is None or one is None or two is None:
        raise MeasureError("One of the two runs no longer has a diagnosis or a configuration.")
    name = run.experiment.name
    for side, words in ((before.run.experiment, "The run before"), (after.run.experiment, name)):
        if side.origin == Origin.RECONSTRUCTED:
            raise MeasureError(f"{words} is reconstructed, so it does not count as a measurement.")
    fit = unmeasured.compared_with(proposal, run.experiment)
    if fit is None or not fit.is_same_configuration:
        why = " ".join(fit.departures) if fit is not None else "its configuration no longer matches."
        raise MeasureError(f"{name} is not a run of this proposal: {why}")
    against = against_profile.contradicted(run.profile, run.experiment.config or {}, two)
    if undecided := against_profile.undecided_contradictions(against, run.experiment.config_kept):
        more = f" ({len(undecided) - 1} more)" if len(undecided) > 1 else ""
        why = f"{undecided[0].sentence}{more} Correct or keep it in the configuration of that run."
        raise MeasureError(f"The profile of {name[:60]} does not match this proposal: {why}")
    was, now = before.run.profile.step_time_s, after.run.profile.step_time_s
    if not was or not now:
        words = "The profile before" if not was else f"The profile of {name}"
        raise MeasureError(f"{words} has no step markers, so there is no step time to compare; record whole steps.")
    tokens = token_ratio(one, two)
    if tokens is None:
        raise MeasureError(
            "Only one of the two configurations has batch and sequence length, so time per token cannot be "
            "compared; complete both and try again."
        )
    chips, said = two.hardware.chips / one.hardware.chips, _caveats(proposal, before, after, fit)
    if chips != 1.0:
        fewer = f"{two.hardware.chips:,} chips instead of {one.hardware.chips:,}: the speed-up is per token and chip."
        said = (fewer, *said)
    return Compared(before, after, one, two, was, now, was / now * tokens / chips, said)


def _caveats(proposal: Proposal, before: DiagnosisRecord, after: DiagnosisRecord, fit: Match) -> tuple[str, ...]:
    """What stands between the proposal's changes and the effect."""
    comparison = comparing.summary(before, after)
    said = list(fit.further)
    said += [
        f"Configuration kept despite the profile: {text}" for text in against_profile.caveats(after.run.experiment)
    ]
    bare = [side.run.experiment.name for side in (before, after) if not side.value.measured]
    if bare:
        said.append(f"Only the step time of {' and '.join(bare)} was measured; other differences are unknown.")
    said += [line for line in comparison.comparability.reasons if line.startswith("The profiles were recorded on")]
    if comparison.comparability.comparable and comparison.comparability.allowed:
        said.append(comparison.comparability.allowed)
    if comparison.significant is False:
        said.append("The difference is within the variation of step times.")
    kind = ((after.run.profile.summary or {}).get("device") or {}).get("kind") or ""
    if kind.startswith("CPU"):
        said.append("Recorded on CPU devices, not on the configured chips.")
    if after.run.experiment.created_at < proposal.created_at:
        said.append("It ran before the proposal was made.")
    return tuple(said)


def _prediction_at_approval(proposal: Proposal) -> dict[str, float | None]:
    """The prediction as it was when the proposal was approved; a stored proposal's numbers never change.

    sigma: the model's own spread of the log gain, which the shown range widens by what predictions were off before.
    """
    predicted = proposal.value.predicted
    return {
        "predicted_log_gain": log(predicted.speedup / _chips_ratio(proposal)) if predicted.speedup else None,
        "predicted_sigma": predicted.sigma,
        "predicted_confidence": proposal.confidence,
    }


def _outcome(made: Measurement, speedup: float) -> str:
    """With a control arm by its verdict: what lies within the noise of both is no change, however far from one."""
    if made.control.get("outcome") == NO_DIFFERENCE:
        return "no_change"
    return outcome_of(speedup)


def range80(made: Measurement) -> tuple[float, float] | None:
    """The predicted 80 % interval of the speed-up, per token and chip where there are fewer chips."""
    predicted = made.proposal.value.predicted
    low, high = predicted.speedup_low80, predicted.speedup_high80
    if not low or not high:
        return None
    chips = _chips_ratio(made.proposal)
    return low / chips, high / chips


def _chips_ratio(proposal: Proposal) -> float:
    """Chips of the proposal over those that ran; 1 for all but those that asked for fewer."""
    changes = proposal.value.changes
    config = unmeasured.before_config(proposal) if "topology" in changes else None
    return chips_ratio(config, changes) if config is not None else 1.0


def _ready_run(experiment: Experiment) -> Run | None:
    """The newest run, where it is ready."""
    run = experiment.runs.select_related("experiment", "profile").order_by("-pk").first()
    return run if run is not None and run.status == RunStatus.READY else None


def _may(proposal: Proposal, experiment: Experiment, user: User) -> None:
    check(user, proposal, Role.ENGINEER)
    check(user, experiment, Role.ENGINEER)
    if proposal.team_id != experiment.team_id:
        raise MeasureError("The proposal and the run belong to different teams.")


def must_await_result(proposal: Proposal) -> None:
    """Raises MeasureError where a proposal is not to be launched or measured, or has its result."""
    if proposal.status != Proposal.Status.APPROVED:
        raise MeasureError("Only an approved proposal is launched and measured; a reviewer decides on it first.")
    if proposal.kind == "keep":
        raise MeasureError("This proposal keeps the current configuration: there is nothing to measure.")
    if has_result(proposal):
        raise MeasureError("This proposal already has a result.")


def _lock(*experiments: int) -> None:
    """Both experiments' event orders, always in the same order: nobody waits in a circle."""
    for pk in sorted(set(experiments)):
        events.lock(pk)
