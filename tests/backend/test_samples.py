from __future__ import annotations

from django.core.management import call_command

from accounts.models import Team
from accounts.services import LOCAL_TEAM
from experiments.models import Experiment, Origin, Run, RunStatus
from experiments.samples.samples import SAMPLES


def test_the_shipped_profiles_are_queued_once_and_say_where_they_come_from(db):
    call_command("load_samples")
    call_command("load_samples")
    found = {e.sample: e for e in Experiment.objects.all()}
    assert set(found) == {sample.key for sample in SAMPLES}
    assert Experiment.objects.count() == Run.objects.filter(status=RunStatus.UPLOADED).count() == len(SAMPLES)
    for sample in SAMPLES:
        experiment = found[sample.key]
        assert experiment.label == sample.label
        assert (experiment.origin == Origin.RECONSTRUCTED) == (sample.provenance == "reconstructed")
        assert experiment.config is not None
        assert experiment.config_errors == {}
        assert experiment.profiles.get().files.count() == len(sample.files)
    assert {e.team.name for e in found.values()} == {LOCAL_TEAM}
    assert Experiment.objects.first().sample == SAMPLES[0].key


def test_a_deleted_sample_comes_back_only_by_itself(db):
    call_command("load_samples")
    Experiment.objects.get(sample=SAMPLES[0].key).delete()
    call_command("load_samples")
    assert Experiment.objects.filter(sample=SAMPLES[0].key).count() == 1
    other = Team.objects.create(name="Another")
    call_command("load_samples", team="Another")
    assert Experiment.objects.filter(team=other).count() == len(SAMPLES)
