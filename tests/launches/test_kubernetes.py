"""The Kubernetes backend through the official client against an API server that checks every request."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from launches.backends import BackendError, JobSpec, JobState
from launches.backends.kubernetes_jobs import Identity, Kubernetes
from tests.launches.fake_kubernetes import FakeKubernetes

NAME = "asap-7-proposal-1"


@pytest.fixture
def server() -> Iterator[FakeKubernetes]:
    found = FakeKubernetes()
    yield found
    found.stop()


@pytest.fixture
def backend(server: FakeKubernetes, tmp_path: Path) -> Kubernetes:
    (tmp_path / "config").write_text(server.kubeconfig())
    return Kubernetes(Identity("training"), str(tmp_path / "config"))


def spec(**values: object) -> JobSpec:
    given = {"image": "registry.example.org/maxtext:1", "resource": "google.com/tpu",
             "node_selector": {"cloud.google.com/gke-tpu-topology": "4x4"}, **values}  # fmt: skip
    return JobSpec(
        name=NAME, files={"run.sh": "echo", "config.yaml": "name: x"}, environment={"STEPS": "3"},
        secret={"ASAP_TOKEN": "secret word"}, hosts=4, chips_per_host=4, time_limit_min=30, values=given,
    )  # fmt: skip


def test_a_job_with_a_pod_for_each_host_and_its_chips(server: FakeKubernetes, backend: Kubernetes) -> None:
    assert backend.submit(spec()) == NAME
    job = server.objects["jobs", NAME]
    pod = job["spec"]["template"]["spec"]
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 4 and job["spec"]["backoffLimit"] == 0
    assert job["spec"]["completionMode"] == "Indexed" and job["spec"]["activeDeadlineSeconds"] == 1800
    assert pod["containers"][0]["resources"]["limits"] == {"google.com/tpu": "4"}
    assert pod["nodeSelector"] == {"cloud.google.com/gke-tpu-topology": "4x4"} and pod["subdomain"] == NAME
    assert server.objects["configmaps", NAME]["data"]["run.sh"] == "echo"
    assert "secret word" in server.objects["secrets", NAME]["stringData"]["secret.env"]
    assert server.objects["services", NAME]["spec"]["clusterIP"] == "None"
    uid = job["metadata"]["uid"]
    for kind in ("configmaps", "secrets", "services"):
        assert server.objects[kind, NAME]["metadata"]["ownerReferences"][0]["uid"] == uid


def test_nothing_of_the_token_is_in_the_job_or_its_bundle(server: FakeKubernetes, backend: Kubernetes) -> None:
    backend.submit(spec())
    for kind in ("jobs", "configmaps", "services"):
        text = str(server.objects[kind, NAME])
        assert "secret word" not in text and base64.b64encode(b"secret word").decode() not in text


def test_submitting_again_finds_the_job_and_completes_what_a_dead_worker_left(
    server: FakeKubernetes, backend: Kubernetes
) -> None:
    backend.submit(spec())
    del server.objects["services", NAME]
    uid = server.objects["jobs", NAME]["metadata"]["uid"]
    assert backend.submit(spec()) == NAME
    assert server.objects["jobs", NAME]["metadata"]["uid"] == uid and ("services", NAME) in server.objects


def test_its_states(server: FakeKubernetes, backend: Kubernetes) -> None:
    backend.submit(spec())
    assert backend.status(NAME).state == JobState.WAITING
    why = "0/3 nodes are available: 3 Insufficient google.com/tpu."
    condition = {"type": "PodScheduled", "status": "False", "message": why}
    server.pod(NAME, 0, phase="Pending", conditions=[condition])
    assert backend.status(NAME).reason == why
    server.pod(NAME, 0, phase="Running")
    assert backend.status(NAME).state == JobState.RUNNING
    server.finish(NAME, "Complete")
    assert backend.status(NAME).state == JobState.SUCCEEDED
    ended = {"name": "train", "image": "x", "imageID": "x", "ready": False, "restartCount": 0,
             "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}  # fmt: skip
    server.pod(NAME, 0, phase="Failed", containerStatuses=[ended])
    server.finish(NAME, "Failed", "Job has reached the specified backoff limit")
    failed = backend.status(NAME)
    assert failed.state == JobState.FAILED and failed.reason == "Exit status 137 (OOMKilled)."
    assert backend.status("asap-7-control-1").state == JobState.GONE


def test_an_image_that_cannot_be_pulled_is_said(server: FakeKubernetes, backend: Kubernetes) -> None:
    backend.submit(spec())
    waiting = {"name": "train", "image": "x", "imageID": "", "ready": False, "restartCount": 0,
               "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}  # fmt: skip
    server.pod(NAME, 0, phase="Pending", containerStatuses=[waiting])
    assert backend.status(NAME).reason == "ImagePullBackOff: not found"


def test_deleting_takes_everything_with_it_and_again_is_no_error(server: FakeKubernetes, backend: Kubernetes) -> None:
    backend.submit(spec())
    backend.cancel(NAME)
    backend.cancel(NAME)
    assert not server.objects


def test_the_logs_of_all_pods(server: FakeKubernetes, backend: Kubernetes) -> None:
    backend.submit(spec())
    for index in range(3):
        server.pod(NAME, index, phase="Failed")
    server.logs = {f"{NAME}-{index}-abcde": f"rank {index}" for index in (0, 2)}  # one never started
    assert backend.log(NAME) == b"rank 0\nrank 2"


def test_of_a_long_log_the_end(server: FakeKubernetes, backend: Kubernetes) -> None:
    backend.submit(spec())
    server.pod(NAME, 0, phase="Failed")
    server.pod(NAME, 1, phase="Failed")
    server.logs = {f"{NAME}-{index}-abcde": "compiling\n" * 1000 + f"error of rank {index}" for index in (0, 1)}
    log = backend.log(NAME, most_bytes=400)
    assert len(log) <= 401 and b"error of rank 0" in log and log.endswith(b"error of rank 1")


def test_a_queue_of_kueue_starts_it(server: FakeKubernetes, backend: Kubernetes) -> None:
    backend.submit(spec(queue="tpu"))
    job = server.objects["jobs", NAME]
    assert job["spec"]["suspend"] is True and job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "tpu"


def test_refusals_are_one_sentence(server: FakeKubernetes, backend: Kubernetes, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="needs an image"):
        backend.submit(spec(image=""))
    (tmp_path / "other").write_text(server.kubeconfig("wrong"))
    with pytest.raises(BackendError, match=r"401.*service account") as refused:
        Kubernetes(Identity("training"), str(tmp_path / "other")).submit(spec())
    assert not refused.value.passing and len(str(refused.value)) <= 300
    server.fail_with = 503
    with pytest.raises(BackendError, match="503") as busy:
        backend.status(NAME)
    assert busy.value.passing
    with pytest.raises(BackendError, match="not configured"):
        Kubernetes(Identity("training"), str(tmp_path / "absent"))
    server.stop()
    with pytest.raises(BackendError, match="cannot be reached") as away:
        backend.status(NAME)
    assert away.value.passing
