"""Kubernetes: an Indexed Job per run, one pod per host, with its bundle as ConfigMap and its token as Secret.

A Service without an address gives the pods of a job names by which they find the first one (Indexed Job with
`subdomain`; on GKE this is also what TPU pods need).  Everything carries the job's name and is owned by the Job, so
that deleting it deletes all.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kubernetes import client, config
from urllib3.exceptions import HTTPError

from launches.backends.base import BackendError, JobSpec, JobState, JobStatus, environment_text

_TIMEOUT_S = 30
_LABEL = "asap.run"
_MOUNT, _SECRET = "/asap/bundle", "/asap/secret"
_PORT = 8476  # of JAX's coordinator
#: Of a line of a log, less than most have: as many lines are asked for as may fill what is kept.
_LINE_BYTES = 50


@dataclass(frozen=True)
class Identity:
    """A team in the cluster.  service_account: of its pods, unless it names another; empty: that of the namespace.
    user: number under which pods run without privileges; None: as their image says."""

    namespace: str
    service_account: str = ""
    user: int | None = 1000


class Kubernetes:
    """kubeconfig: a file, None inside of the cluster.  context: in it, None for its current one."""

    can_cancel = True

    def __init__(self, identity: Identity, kubeconfig: str | None = None, context: str | None = None) -> None:
        self.identity = identity
        self.namespace = identity.namespace
        try:
            settings = client.Configuration()
            if kubeconfig is None:
                config.load_incluster_config(client_configuration=settings)
            else:
                config.load_kube_config(kubeconfig, context=context, client_configuration=settings)
        except (config.ConfigException, OSError) as error:
            raise BackendError(f"Kubernetes is not configured: {str(error)[:200]}.") from error
        settings.retries = False
        api = client.ApiClient(settings)
        self.core, self.batch = client.CoreV1Api(api), client.BatchV1Api(api)

    def submit(self, spec: JobSpec) -> str:
        if not spec.values.get("image"):
            raise BackendError("Kubernetes needs an image with the training program; set it under Settings, Launching.")
        job = self._create(self.batch.create_namespaced_job, manifest(spec, self.identity))
        created = job or self._call(self.batch.read_namespaced_job, spec.name)
        try:
            self._complete(spec, created.metadata.uid)
        except BackendError as error:
            if not error.passing:  # its pods would hold their nodes until the time limit, and never start
                with suppress(BackendError):
                    self.cancel(spec.name)
            raise
        return spec.name

    def _complete(self, spec: JobSpec, uid: str) -> None:
        """What the pods of a Job need to start, owned by it."""
        owner = client.V1OwnerReference(api_version="batch/v1", kind="Job", name=spec.name, uid=uid)
        about = client.V1ObjectMeta(name=spec.name, labels={_LABEL: spec.name}, owner_references=[owner])
        files, secret = dict(spec.files), {"secret.env": environment_text(spec)}
        self._create(self.core.create_namespaced_config_map, client.V1ConfigMap(metadata=about, data=files))
        self._create(self.core.create_namespaced_secret, client.V1Secret(metadata=about, string_data=secret))
        ports = [client.V1ServicePort(port=_PORT)]
        service = client.V1ServiceSpec(cluster_ip="None", selector={"job-name": spec.name}, ports=ports)
        self._create(self.core.create_namespaced_service, client.V1Service(metadata=about, spec=service))

    def status(self, job: str) -> JobStatus:
        try:
            answer = self._call(self.batch.read_namespaced_job, job)
        except _NotFound:
            return JobStatus(JobState.GONE, "The job no longer exists in Kubernetes.")
        conditions = {item.type: item for item in answer.status.conditions or [] if item.status == "True"}
        if "Complete" in conditions:
            return JobStatus(JobState.SUCCEEDED)
        if "Failed" in conditions:
            return JobStatus(JobState.FAILED, self._why(job, conditions["Failed"].message or ""))
        pods = self._pods(job)
        if pods and all(pod.status.phase in ("Running", "Succeeded") for pod in pods):
            return JobStatus(JobState.RUNNING)
        return JobStatus(JobState.WAITING, _waits_for(pods))

    def cancel(self, job: str) -> None:
        try:
            self._call(self.batch.delete_namespaced_job, job, propagation_policy="Background")
        except _NotFound:
            return

    def log(self, job: str, most_bytes: int = 10_000_000) -> bytes:
        pods = self._pods(job)[:16]
        logs = []
        for pod in pods:
            # Its `limit_bytes` would keep the beginning, and the error stands at the end.
            most = max(1, most_bytes // len(pods))
            lines = max(1, most // _LINE_BYTES)
            try:
                text = self._call(self.core.read_namespaced_pod_log, pod.metadata.name, tail_lines=lines)
            except BackendError:
                continue  # a pod that never started has none
            logs.append(text.encode("utf-8", "replace")[-most:])
        return b"\n".join(logs)

    def _pods(self, job: str) -> list[Any]:
        pods = self._call(self.core.list_namespaced_pod, label_selector=f"job-name={job}")
        return list(pods.items)

    def _why(self, job: str, message: str) -> str:
        """Who took a pod away, else the first process that was ended for a reason, else what the job says."""
        pods = self._pods(job)
        for pod in pods:
            for item in pod.status.conditions or []:
                if item.type == "DisruptionTarget" and item.status == "True" and item.message:
                    return str(item.message)[:300]
        for pod in pods:
            for item in pod.status.container_statuses or []:
                ended = item.state.terminated if item.state else None
                if ended is not None and ended.exit_code:
                    return f"Exit status {ended.exit_code} ({ended.reason})." if ended.reason else message
        return message[:300]

    def _create(self, call: Any, body: Any) -> Any:
        """What was made; None where an object of this name is there already."""
        try:
            return self._call(call, body=body)
        except _Exists:
            return None

    def _call(self, call: Any, *args: Any, **more: Any) -> Any:
        if "body" in more:
            args, more = (self.namespace, more.pop("body")), more
        elif args:
            args = (args[0], self.namespace, *args[1:])
        else:
            args = (self.namespace,)
        try:
            return call(*args, _request_timeout=_TIMEOUT_S, **more)
        except client.ApiException as error:
            said = f"Kubernetes answered {error.status} ({str(error.reason)[:100]})"
            if error.status == 404:
                raise _NotFound(f"{said}.") from error
            if error.status == 409:
                raise _Exists(f"{said}.") from error
            if error.status in (401, 403):
                raise BackendError(
                    f"{said}: {_message(error)[:150]}. Let the service account manage jobs, pods, services, "
                    "secrets and configmaps, within the quota of its namespace."
                ) from error
            raise BackendError(f"{said}: {_message(error)}.", passing=error.status in (429, 500, 503, 504)) from error
        except (HTTPError, OSError) as error:
            raise BackendError(f"Kubernetes cannot be reached: {str(error)[:150]}", passing=True) from error


class _NotFound(BackendError):
    pass


class _Exists(BackendError):
    pass


def _of_pod(user: int | None) -> client.V1PodSecurityContext | None:
    """What the Pod Security Standard *restricted* asks of a pod; its group lets it read its token."""
    if user is None:
        return None
    return client.V1PodSecurityContext(
        run_as_non_root=True, run_as_user=user, run_as_group=user, fs_group=user,
        seccomp_profile=client.V1SeccompProfile(type="RuntimeDefault"),
    )  # fmt: skip


def _of_container(user: int | None) -> client.V1SecurityContext | None:
    if user is None:
        return None
    return client.V1SecurityContext(
        allow_privilege_escalation=False, privileged=False, capabilities=client.V1Capabilities(drop=["ALL"])
    )


def manifest(spec: JobSpec, identity: Identity) -> client.V1Job:
    """The Job: one try, one pod per host, each with all chips of its host."""
    values = spec.values
    chips = {values["resource"]: str(spec.chips_per_host)} if values.get("resource") else {}
    container = client.V1Container(
        name="train",
        image=values["image"],
        command=["bash", f"{_MOUNT}/run.sh"],
        env=[
            client.V1EnvVar(name="ASAP_SECRET", value=f"{_SECRET}/secret.env"),
            client.V1EnvVar(name="ASAP_HOSTS", value=str(spec.hosts)),
            client.V1EnvVar(name="ASAP_COORDINATOR", value=f"{spec.name}-0.{spec.name}:{_PORT}"),
        ],
        security_context=_of_container(identity.user),
        resources=client.V1ResourceRequirements(requests=chips or None, limits=chips or None),
        volume_mounts=[client.V1VolumeMount(name="bundle", mount_path=_MOUNT, read_only=True),
                       client.V1VolumeMount(name="secret", mount_path=_SECRET, read_only=True)],
    )  # fmt: skip
    pod = client.V1PodSpec(
        containers=[container],
        restart_policy="Never",
        subdomain=spec.name,
        node_selector=values.get("node_selector") or None,
        service_account_name=values.get("service_account") or identity.service_account or None,
        automount_service_account_token=False,  # a training program has nothing to ask of the API server
        security_context=_of_pod(identity.user),
        tolerations=[client.V1Toleration(key=values["resource"], operator="Exists")] if chips else None,
        volumes=[
            client.V1Volume(name="bundle", config_map=client.V1ConfigMapVolumeSource(name=spec.name)),
            client.V1Volume(
                name="secret", secret=client.V1SecretVolumeSource(secret_name=spec.name, default_mode=0o440)
            ),
        ],
    )  # fmt: skip
    labels = {_LABEL: spec.name}
    if values.get("queue"):
        labels["kueue.x-k8s.io/queue-name"] = values["queue"]
    return client.V1Job(
        metadata=client.V1ObjectMeta(name=spec.name, labels=labels),
        spec=client.V1JobSpec(
            completions=spec.hosts, parallelism=spec.hosts, completion_mode="Indexed", backoff_limit=0,
            active_deadline_seconds=spec.time_limit_min * 60, ttl_seconds_after_finished=7 * 24 * 3600,
            suspend=True if values.get("queue") else None,
            template=client.V1PodTemplateSpec(metadata=client.V1ObjectMeta(labels={_LABEL: spec.name}), spec=pod),
        ),
    )  # fmt: skip


def _waits_for(pods: list[Any]) -> str:
    """Why the first pod that waits does, in the scheduler's words."""
    for pod in pods:
        for item in pod.status.container_statuses or []:
            waiting = item.state.waiting if item.state else None
            if waiting is not None and waiting.reason not in (None, "ContainerCreating", "PodInitializing"):
                return f"{waiting.reason}: {(waiting.message or '')[:200]}".strip(": ")
        for item in pod.status.conditions or []:
            if item.type == "PodScheduled" and item.status == "False":
                return (item.message or item.reason or "")[:200]
    return ""


def _message(error: client.ApiException) -> str:
    """In the API server's words, which it wraps in a Status."""
    try:
        said = json.loads(error.body)["message"]
    except (ValueError, TypeError, KeyError):
        said = error.body
    return " ".join(str(said or "").split())[:200].rstrip(".")
