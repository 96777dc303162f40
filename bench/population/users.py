"""People at work on a large site, for Locust: `locust -f bench/population/users.py --headless --host …`.

Each signs in with a password, looks mostly at lists and pages, sometimes searches, computes, uploads or reads the API,
and thinks in between.  What is no success is an error: there is none to be expected.  Started by `bench.load`.  With
FastHttpUser, which takes less of the processors that the application has to share with it.
"""

from __future__ import annotations

import itertools
import os
import random
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from locust import FastHttpUser, between, task
from locust.exception import StopUser
from urllib3 import encode_multipart_formdata

PASSWORD = os.environ["ASAP_LOAD_PASSWORD"]
USERS = int(os.environ["ASAP_LOAD_USERS"])
THINK_S = float(os.environ.get("ASAP_LOAD_THINK_S", "8"))
SAMPLE = Path(__file__).resolve().parents[2] / "experiments" / "samples" / "asap-experiment-1"
SEARCHES = (
    "communication-bound llama on v5e",
    "remat minimal",
    "fp8 instead of bf16",
    "h100 mixtral",
    "wider model axis",
)
COMPUTATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("verdict", {}), ("price", {"changes": "remat=none"}), ("which_first", {}), ("fits", {}),
)  # fmt: skip
_LINK = re.compile(r'href="/experiments/(\d+)/"')
_number = itertools.count()


class Engineer(FastHttpUser):
    wait_time = between(THINK_S / 2, THINK_S * 1.5)

    def on_start(self) -> None:
        name = f"user-{next(_number) % USERS + 1}"
        self.client.get("/sign-in/", name="sign-in form")
        given = {"username": name, "password": PASSWORD, **self._token()}
        answer = self.client.post("/sign-in/", given, name="sign in", headers=self._referer())
        if "/sign-in/" in answer.url:
            raise StopUser
        me = self.client.get("/api/me/", name="API: me").json()
        self.role = me["memberships"][0]["role"]
        self.known: list[str] = []
        self.list_experiments()

    def _token(self) -> dict[str, str]:
        return {"csrfmiddlewaretoken": self._csrf()}

    def _csrf(self) -> str:
        return next((str(cookie.value) for cookie in self.client.cookiejar if cookie.name == "csrftoken"), "")

    def _referer(self) -> dict[str, str]:
        return {"Referer": f"{self.host}/", "X-CSRFToken": self._csrf()}

    def _one(self) -> str:
        return random.choice(self.known)

    @task(10)
    def list_experiments(self) -> None:
        query = random.choice(
            ("", "", f"?page={random.randint(1, 9)}", "?sort=-gain", "?q=communication", "?state=ready")
        )
        page = self.client.get(f"/experiments/{query}", name="experiments")
        self.known = _LINK.findall(page.text) or self.known

    @task(4)
    def home(self) -> None:
        self.client.get("/", name="home")

    @task(9)
    def diagnosis(self) -> None:
        self.client.get(f"/experiments/{self._one()}/", name="diagnosis")

    @task(3)
    def ops(self) -> None:
        self.client.get(f"/experiments/{self._one()}/ops/?q=fusion", name="ops")

    @task(7)
    def proposals(self) -> None:
        self.client.get(f"/experiments/{self._one()}/proposals/", name="proposals")

    @task(3)
    def memory(self) -> None:
        query = random.choice(("", "?end=1", "?kind=tool", "?q=fusion"))
        self.client.get(f"/experiments/{self._one()}/memory/{query}", name="memory")

    @task(4)
    def history(self) -> None:
        self.client.get(f"/history/?{urlencode({'q': random.choice(SEARCHES)})}", name="history, searched")

    @task(2)
    def knowledge(self) -> None:
        self.client.get(f"/knowledge/?{urlencode({'q': random.choice(SEARCHES)})}", name="knowledge, searched")

    @task(2)
    def launch(self) -> None:
        self.client.get(f"/experiments/{self._one()}/launch/", name="launch files")

    @task(3)
    def api(self) -> None:
        address = random.choice(("experiments/?limit=50", "proposals/?status=approved", "history/records/", "runs/"))
        self.client.get(f"/api/{address}", name=f"API: {address.partition('/')[0]}")

    @task(2)
    def compute(self) -> None:
        """A computation about a run, as the palette and the questions on objects ask for it."""
        key, arguments = random.choice(COMPUTATIONS)
        self.client.get(f"/experiments/{self._one()}/compute/{key}/", params=arguments, name="Computation")

    @task(1)
    def upload(self) -> None:
        if self.role == "viewer" or random.random() > 0.25:
            return
        (file,) = SAMPLE.glob("*.xplane.pb.gz")
        body, kind = encode_multipart_formdata(
            {
                "config": (SAMPLE / "config.json").read_text(),
                "name": "load test",
                "files": (file.name, file.read_bytes()),
            }
        )
        headers = {**self._referer(), "Content-Type": kind}
        self.client.post("/api/experiments/", data=body, headers=headers, name="API: upload")
