"""The steps of making a large site, from the empty folder to the analysed tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

PASSWORD = "a long password of the load test"
SEED = 5
#: Computations that each conversation holds, with their arguments.
COMPUTED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("which_first", {}),
    ("price", {"changes": {"remat": "none"}}),
    ("verdict", {}),
    ("fits", {}),
)
#: While a database is filled nothing of it has to survive a crash.
FILLING = {
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "16GB",
    "maintenance_work_mem": "1GB",
    "autovacuum": "off",
}


@dataclass(frozen=True)
class Sizes:
    """How many rows of each kind.  Each experiment brings three proposals."""

    experiments: int = 20_000
    events: int = 5_000_000
    records: int = 100_000
    passages: int = 5_000
    users: int = 200
    teams: int = 20

    def scaled(self, scale: float) -> Sizes:
        """That share of all, with all users; at least two teams and a few of everything."""
        least = {"teams": 2, "users": self.users, "passages": 400}
        return Sizes(**{f.name: max(least.get(f.name, 50), round(getattr(self, f.name) * scale)) for f in fields(self)})


@contextmanager
def database(home: Path) -> Iterator[None]:
    """Django on the migrated database of `home`, with a PostgreSQL that is fast and keeps nothing safe meanwhile."""
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o755)
    (home / "uploading").mkdir(exist_ok=True)
    os.environ |= {
        "ASAP_HOME": str(home),
        "ASAP_HASHED_STATIC": "0",
        "ASAP_LOG_LEVEL": "ERROR",
        "CELERY_BROKER_URL": "memory://",
        "DJANGO_SETTINGS_MODULE": "asapweb.settings",
    }
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        os.environ.pop(name, None)
    from asapweb.launcher.postgres import place_cluster

    cluster = place_cluster(home, home / "postgres.log", durable=False)
    os.environ["DATABASE_URL"] = cluster.url
    with cluster.running(), cluster.connect() as server:
        for name, value in FILLING.items():
            server.execute(f"alter system set {name} = '{value}'")
    with cluster.running():  # some of them take a new start
        cluster.create_database()
        import django
        from django.core.management import call_command
        from django.db import connections

        django.setup()
        call_command("migrate", verbosity=0, interactive=False)
        yield
        connections.close_all()
        with cluster.connect() as server:
            server.execute("alter system reset all")


def build(sizes: Sizes, say: Callable[[str], None] = print) -> None:
    """Fill the empty database to these sizes."""
    from django.db import connection

    from bench import history, retrieval
    from bench.population import copies
    from history.services import seed
    from knowledge.services.shipped import load_shipped

    teams = _people(sizes)
    say(f"{sizes.users:,} users in {sizes.teams:,} teams")
    templates = _templates()
    say(f"{len(templates):,} shipped profiles analysed, {len(COMPUTED)} questions computed for each")
    random = np.random.default_rng(SEED)
    copies.make(templates, plan(sizes, teams, templates, random), say)
    load_shipped()
    retrieval.fill(max(1, sizes.passages - len(_passages())))
    _documents(teams)
    say(f"{len(_passages()):,} passages")
    seed()
    counts = np.maximum(1, shares(len(teams)) * sizes.records).astype(int)
    history.write([(team, int(count)) for team, count in zip(teams, counts, strict=True)])
    say(f"{counts.sum():,} records")
    with connection.cursor() as cursor:
        cursor.execute("vacuum analyze")
    say("analysed")


def _passages() -> Any:
    from knowledge.models import Passage

    return Passage.objects.values_list("pk", flat=True)


def _documents(teams: list[Any]) -> None:
    """The passages drawn from the shipped ones become those of documents of the teams, fifty each."""
    from django.db.models import F

    from knowledge.models import Document, Kind, Passage

    drawn = Document.objects.get(name="benchmark")
    pks = list(drawn.passages.order_by("pk").values_list("pk", flat=True))
    random = np.random.default_rng(SEED)
    for number, start in enumerate(range(0, len(pks), 50)):
        team = teams[int(random.choice(len(teams), p=shares(len(teams))))] if number else teams[0]
        document = Document.objects.create(
            team=team,
            kind=Kind.MARKDOWN,
            title=f"Notes of sweep {number}",
            name=f"sweep-{number}.md",
            sha256=str(number),
        )
        own = Passage.objects.filter(pk__in=pks[start : start + 50])
        own.update(team=team, document=document, position=F("pk") - pks[start])
    drawn.delete()


def shares(count: int) -> np.ndarray:
    """Of each team, in proportion to 1/k."""
    weights = 1 / np.arange(1, count + 1)
    return np.asarray(weights / weights.sum())


def _people(sizes: Sizes) -> list[Any]:
    """The teams; users `user-1` … with one password, the first of each team its administrator, some in two teams."""
    from django.contrib.auth.hashers import make_password

    from accounts.models import Membership, Role, Team, User
    from accounts.services import first_administrator

    first_administrator()
    teams = Team.objects.bulk_create(Team(name=f"Team {n + 1}") for n in range(sizes.teams))
    secret = make_password(PASSWORD)
    users = User.objects.bulk_create(User(username=f"user-{n + 1}", password=secret) for n in range(sizes.users))
    roles = (Role.ENGINEER, Role.REVIEWER, Role.ENGINEER, Role.VIEWER, Role.ENGINEER)
    made = []
    for number, user in enumerate(users):
        role = Role.ADMINISTRATOR if number < sizes.teams else roles[number % len(roles)]
        made.append(Membership(user=user, team=teams[number % sizes.teams], role=role))
        if number % 10 == 9:
            made.append(Membership(user=user, team=teams[(number + 1) % sizes.teams], role=Role.VIEWER))
    Membership.objects.bulk_create(made)
    return teams


def _templates() -> list[Any]:
    """The shipped profiles in the local team, analysed, with a conversation about each."""
    from accounts.services import first_administrator
    from dialogue.services import asking, computing
    from experiments.models import Experiment
    from experiments.services import runs
    from experiments.services.shipped import load_into
    from proposals.services import coordinator

    user = first_administrator()
    load_into(user.memberships.get().team)
    shipped = list(Experiment.objects.order_by("pk"))
    for experiment in shipped:
        run = runs.newest(experiment)
        assert run is not None
        coordinator.advance(run.pk)
        experiment.refresh_from_db()
        if experiment.state != "ready":
            raise SystemExit(f"{experiment} did not become ready")
        thread = asking.open_thread(experiment, user)
        for key, arguments in COMPUTED:
            computing.keep(thread, user, key, arguments)
    return shipped


def plan(sizes: Sizes, teams: list[Any], templates: list[Any], random: np.random.Generator) -> list[tuple[Any, ...]]:
    """One row of each copy: of which experiment, whose, when, in which state, and how many events it has."""
    from datetime import timedelta

    from django.utils import timezone

    from accounts.models import Membership

    members: dict[int, list[int]] = {}
    for team, user in Membership.objects.values_list("team_id", "user_id"):
        members.setdefault(team, []).append(user)
    count = sizes.experiments - len(templates)
    of_team = random.choice(len(teams), size=count, p=shares(len(teams)))
    states = random.choice(["ready", "failed", "configuring"], size=count, p=[0.94, 0.04, 0.02])
    reviews = random.choice(["open", "approved", "rejected"], size=count, p=[0.45, 0.40, 0.15])
    # One experiment in a hundred was argued about for weeks and holds a fifth of the events.
    weights = np.where(np.arange(count) % 100 == 99, 20.0, 1.0)
    events = np.maximum(10, np.round(weights / weights.sum() * sizes.events)).astype(int)
    now = timezone.now()
    rows: list[tuple[Any, ...]] = []
    for n in range(count):
        template, team = templates[n % len(templates)], teams[of_team[n]].pk
        user = members[team][int(random.integers(len(members[team])))]
        rows.append(
            (
                n, template.pk, team, user, now - timedelta(minutes=7 * (count - n)),
                f"{template.name.partition(': ')[2] or template.name}, sweep {n // 40} run {n % 40}",
                str(states[n]), str(reviews[n]), float(np.exp(random.normal(0, 0.4))), int(events[n]),
                100_000 if n % 10 == 0 else 40,
            )
        )  # fmt: skip
    return rows
