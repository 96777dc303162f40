"""Trials that are compiled: predicted step time, compiled memory.  The compiler is scripted, its process is real."""

from __future__ import annotations

import pytest

from campaigns.backends import Compiled, Modelled, Stopped
from campaigns.models import Campaign, TrialStatus
from campaigns.services import campaigns, running
from campaigns.services.campaigns import CampaignError
from perfmodel.config_file import parse_config
from proposals.compiling import targets
from tests.backend.factories import CONFIG
from tests.compiling.scripted import steer

WORKER = "tests.compiling.scripted"


def config(**more):
    return parse_config(CONFIG | more)[0]


def measured(monkeypatch, script, **more):
    steer(monkeypatch, COMPILER=script)
    return Compiled(worker=WORKER).measure(config(**more), lambda: False)


def test_the_step_time_is_predicted_and_the_memory_compiled(monkeypatch):
    outcome = measured(monkeypatch, "fits")
    assert outcome.predicted and outcome.peak_bytes == 1.25e10
    assert outcome.step_times_s == Modelled().measure(config(), lambda: False).step_times_s


def test_what_the_compiler_fits_has_a_step_time_though_the_model_says_it_does_not(monkeypatch):
    large = {"model": {"name": "llama3.1-70b"}}
    assert not Modelled().measure(config(**large), lambda: False).step_times_s
    outcome = measured(monkeypatch, "fits", **large)
    assert outcome.step_times_s[0] > 5 * measured(monkeypatch, "fits").step_times_s[0]  # 70 B against 8 B parameters


def test_out_of_memory_forbids_what_needs_more_with_the_compiled_size(monkeypatch):
    outcome = measured(monkeypatch, "out of memory")
    failure = outcome.failure(config())
    assert not outcome.step_times_s
    assert (failure.cause, failure.verdict, failure.values.used) == ("out_of_memory", "forbid", 4e10)
    assert failure.forbidden is not None and failure.forbidden.rule == "memory"


def test_a_compiler_that_dies_says_nothing_of_other_configurations(monkeypatch):
    failure = measured(monkeypatch, "crash").failure(config())
    assert (failure.cause, failure.forbidden) == ("unknown", None)
    assert "The compiler crashed while compiling" in str(failure.sentence)


def test_a_step_that_cannot_be_built_fails_with_the_reason(monkeypatch):
    outcome = measured(monkeypatch, "cannot be built")
    assert not outcome.step_times_s
    assert str(outcome.failure(config()).sentence) == "The step has no sharding over expert: 3 axes are given."


def test_a_cancelled_trial_ends_the_compiler(monkeypatch):
    steer(monkeypatch, COMPILER="hang")
    with pytest.raises(Stopped):
        Compiled(worker=WORKER).measure(config(), lambda: True)


@pytest.mark.slow
@pytest.mark.django_db
class TestCampaign:
    @pytest.fixture(autouse=True)
    def unsent(self, monkeypatch):
        monkeypatch.setattr("celery.app.base.Celery.send_task", lambda self, name, args, **more: None)

    @pytest.fixture
    def scripted(self, settings, monkeypatch):
        settings.COMPILE_WORKER = WORKER
        steer(monkeypatch, COMPILER="fits")

    @pytest.mark.usefixtures("scripted")
    def test_its_page_says_what_is_predicted_and_what_is_compiled(self, people, ready):
        client = people.client("engineer")
        form = {"backend": "compiled", "most_trials": 2, "parallel": 1}
        assert client.post(f"/experiments/{ready.experiment.pk}/campaigns/", form).status_code == 302
        campaign = ready.experiment.campaigns.get()
        while waiting := campaign.trials.filter(status=TrialStatus.WAITING).first():
            running.run(waiting.pk)
        trials = list(campaign.trials.all())
        assert [trial.status for trial in trials] == ["done"] * 3
        assert all(trial.modelled and trial.peak_bytes == 1.25e10 for trial in trials)
        page = client.get(f"/campaigns/{campaign.pk}/").content.decode()
        assert "Compile check (predicted step time, compiled memory)" in page
        assert page.count('title="Computed: by the compiler"') == 3
        told = people.api("viewer").get(f"/api/campaigns/{campaign.pk}/").json()
        assert told["backend"] == "compiled"

    @pytest.mark.usefixtures("scripted")
    def test_what_does_not_fit_is_not_tried_fuller(self, people, ready, monkeypatch):
        steer(monkeypatch, COMPILER="out of memory")
        campaign = campaigns.begin(ready.experiment, people.engineer, Campaign(backend="compiled", most_trials=1))
        running.run(campaign.trials.get(number=0).pk)
        failed = campaign.trials.get(number=0)
        assert failed.failure["cause"] == "out_of_memory" and failed.failure["forbidden"]["rule"] == "memory"

    @pytest.mark.usefixtures("scripted")
    def test_two_are_compiled_at_a_time(self, people, ready):
        with pytest.raises(CampaignError, match="At most 2 trials are compiled at a time"):
            campaigns.begin(ready.experiment, people.engineer, Campaign(backend="compiled", parallel=3))

    def test_without_the_compiler_one_sentence_says_how_to_get_it(self, people, ready):
        if targets.installed("tpu"):
            pytest.skip("libtpu is installed here")
        with pytest.raises(CampaignError, match="bin/bootstrap tpu"):
            campaigns.begin(ready.experiment, people.engineer, Campaign(backend="compiled"))


def test_the_command_says_how_to_get_the_compiler_and_where_a_cluster_is_used(tmp_path, capsys):
    import json

    from asapweb.cli import main

    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG))
    if not targets.installed("tpu"):
        assert main(["campaign", str(file), "--backend", "compiled"]) == 2
        assert "bin/bootstrap tpu" in capsys.readouterr().err
    assert main(["campaign", str(file), "--backend", "cluster"]) == 2
    assert "works only in the web application" in capsys.readouterr().err
