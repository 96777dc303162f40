"""An API server over real HTTP that knows Jobs, ConfigMaps, Secrets, Services and Pods of one namespace.

It refuses what the real one refuses: a missing or wrong bearer token, an unknown path, a body of another kind, a name
that is no DNS label, a field that the schema of Job does not have, the same name twice.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

KINDS = {"jobs": "Job", "configmaps": "ConfigMap", "secrets": "Secret", "services": "Service", "pods": "Pod"}
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PATH = re.compile(
    r"/(?:api/v1|apis/batch/v1)/namespaces/(?P<space>[^/]+)/(?P<kind>[a-z]+)(?:/(?P<name>[^/]+))?(?P<more>/log)?"
)
_JOB_FIELDS = {
    "completions", "parallelism", "completionMode", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished",
    "suspend", "template",
}  # fmt: skip


class FakeKubernetes:
    def __init__(self, token: str = "a-token") -> None:
        self.token = token
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.logs: dict[str, str] = {}
        self.requests: list[tuple[str, str]] = []
        self.fail_with = 0
        self.namespaces = {"training"}
        #: Whether its namespaces admit pods of the Pod Security Standard *restricted* alone.
        self.restricted = False
        #: What this service account may not create, by kind: the status and the words of the refusal.
        self.refused: dict[str, tuple[int, str]] = {}
        handler = type("Handler", (_Handler,), {"fake": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def kubeconfig(self, token: str | None = None) -> str:
        return json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": self.address}}],
            "users": [{"name": "asap", "user": {"token": token or self.token}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "asap", "namespace": "training"}}],
        })  # fmt: skip

    def pod(self, job: str, index: int, **status: Any) -> None:
        name = f"{job}-{index}-abcde"
        labels = {"job-name": job}
        self.objects["pods", name] = {"metadata": {"name": name, "labels": labels}, "status": status}

    def finish(self, job: str, condition: str, message: str = "") -> None:
        made = {"type": condition, "status": "True", "message": message}
        self.objects["jobs", job]["status"] = {"conditions": [made]}


class _Handler(BaseHTTPRequestHandler):
    fake: FakeKubernetes

    def do_GET(self) -> None:
        found = self._asked()
        if found is None:
            return
        kind, name, more, query = found
        if not name:
            wanted = dict([query["labelSelector"][0].split("=")]) if "labelSelector" in query else {}
            items = [
                item for (of, _), item in sorted(self.fake.objects.items())
                if of == kind and wanted.items() <= (item["metadata"].get("labels") or {}).items()
            ]  # fmt: skip
            self._answer(200, {"kind": f"{KINDS[kind]}List", "items": items})
        elif (kind, name) not in self.fake.objects:
            self._refuse(404, "NotFound")
        elif more:
            text = self.fake.logs.get(name)
            if text is None:
                self._refuse(400, "container is waiting to start")
            else:
                # As the real one: the last lines, and of these the first bytes.
                last = int(query.get("tailLines", ["0"])[0])
                lines = "".join(text.splitlines(keepends=True)[-last:])
                self._answer(200, lines[: int(query["limitBytes"][0]) if "limitBytes" in query else None])
        else:
            self._answer(200, self.fake.objects[kind, name])

    def do_POST(self) -> None:
        found = self._asked()
        if found is None:
            return
        kind = found[0]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = body["metadata"]["name"]
        if kind in self.fake.refused:
            self._refuse(*self.fake.refused[kind])
        elif problem := _problem(kind, name, body):
            self._refuse(422, problem)
        elif self.fake.restricted and kind == "jobs" and (problem := _unsafe(body["spec"]["template"]["spec"])):
            self._refuse(403, f'violates PodSecurity "restricted:latest": {problem}')
        elif (kind, name) in self.fake.objects:
            self._refuse(409, "AlreadyExists")
        else:
            body["metadata"]["uid"] = str(uuid.uuid4())
            self.fake.objects[kind, name] = {**body, "status": {}}
            self._answer(201, self.fake.objects[kind, name])

    def do_DELETE(self) -> None:
        found = self._asked()
        if found is None:
            return
        kind, name = found[:2]
        gone = self.fake.objects.pop((kind, name), None)
        if gone is None:
            self._refuse(404, "NotFound")
            return
        for key, item in list(self.fake.objects.items()):
            owners = item["metadata"].get("ownerReferences") or []
            if any(owner["uid"] == gone["metadata"]["uid"] for owner in owners):
                del self.fake.objects[key]
        self._answer(200, {"kind": "Status", "status": "Success"})

    def _asked(self) -> tuple[str, str | None, str | None, dict[str, list[str]]] | None:
        address = urlsplit(self.path)
        self.fake.requests.append((self.command, address.path))
        match = _PATH.fullmatch(address.path)
        if self.fake.fail_with:
            self._refuse(self.fake.fail_with, "etcdserver: request timed out")
        elif self.headers.get("Authorization") != f"Bearer {self.fake.token}":
            self._refuse(401, "Unauthorized")
        elif match is None or match["kind"] not in KINDS or match["space"] not in self.fake.namespaces:
            self._refuse(404, "the server could not find the requested resource")
        else:
            return match["kind"], match["name"], match["more"], parse_qs(address.query)
        return None

    def _answer(self, status: int, value: Any) -> None:
        body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(value, str) else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: int, message: str) -> None:
        if self.command == "POST":
            self.rfile.read(int(self.headers.get("Content-Length", 0)) if not self._read_already else 0)
        self._answer(status, {"kind": "Status", "status": "Failure", "code": status, "message": message})

    @property
    def _read_already(self) -> bool:
        return self.fake.fail_with == 0

    def log_message(self, *_: Any) -> None:
        pass


def _unsafe(pod: dict[str, Any]) -> str:
    """What the admission of pods objects to, by the standard of Kubernetes 1.25 and later."""
    of_pod = pod.get("securityContext") or {}
    if of_pod.get("runAsNonRoot") is not True or not of_pod.get("runAsUser"):
        return "runAsNonRoot != true"
    if (of_pod.get("seccompProfile") or {}).get("type") not in ("RuntimeDefault", "Localhost"):
        return "seccompProfile"
    if pod.get("hostNetwork") or pod.get("hostPID") or any("hostPath" in volume for volume in pod["volumes"]):
        return "host namespaces"
    for container in pod["containers"]:
        own = container.get("securityContext") or {}
        if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
            return "allowPrivilegeEscalation != false"
        if (own.get("capabilities") or {}).get("drop") != ["ALL"] or own["capabilities"].get("add"):
            return "unrestricted capabilities"
    return ""


def _problem(kind: str, name: str, body: dict[str, Any]) -> str:
    if not _LABEL.fullmatch(name):
        return f"Invalid value: {name!r}: a lowercase RFC 1123 label"
    if kind != "jobs":
        return ""
    spec = body["spec"]
    if unknown := set(spec) - _JOB_FIELDS:
        return f"unknown field {unknown.pop()}"
    pod = spec["template"]["spec"]
    names = {volume["name"] for volume in pod["volumes"]}
    for container in pod["containers"]:
        if not container.get("image"):
            return "spec.template.spec.containers[0].image: Required value"
        if any(mount["name"] not in names for mount in container["volumeMounts"]):
            return "volumeMounts: Not found"
        limits = container.get("resources", {}).get("limits") or {}
        if any(key.startswith("google.com/") and limits.get(key) != value
               for key, value in (container["resources"].get("requests") or {}).items()):  # fmt: skip
            return "extended resources: limits must equal requests"
    if pod["restartPolicy"] not in ("Never", "OnFailure"):
        return "restartPolicy: Unsupported value"
    return ""
