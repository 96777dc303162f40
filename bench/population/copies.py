"""Copies of analysed experiments with all their rows, made inside the database.

A table `bench_copy` says what is copied to what.  Of a kind of row of which a template has several, the r-th row of the
n-th copy has the primary key base + n × (most rows of a template) + r, so that rows find each other without a look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

AT_ONCE = 1_000

_COPY = """
create unlogged table bench_copy (
    n integer primary key, template bigint, team bigint, author bigint, at timestamptz, name text, state text,
    review text, factor double precision, events integer, ops integer, first_event bigint
)
"""


def make(templates: list[Any], rows: list[tuple[Any, ...]], say: Callable[[str], None]) -> None:
    """Write the copies that `rows` ask for (`build.plan`)."""
    from django.db import connection

    from diagnosis.models import OpRow
    from experiments.models import Event

    with connection.cursor() as cursor:
        cursor.execute(_COPY)
        with cursor.copy("copy bench_copy from stdin") as copy:
            first_event = 0
            for row in rows:
                copy.write_row((*row, first_event))
                first_event += row[9]
        cursor.execute("select setseed(0.5)")
    writer = Writer(len(rows))
    writer.experiments()
    say(f"{writer.count('experiments_experiment'):,} experiments")
    with rebuilt(OpRow):
        writer.analyses()
    say(f"{writer.count('diagnosis_oprow'):,} ops")
    writer.proposals()
    say(f"{writer.count('proposals_proposal'):,} proposals")
    writer.conversations()
    say(f"{writer.count('dialogue_message'):,} messages")
    with rebuilt(Event):
        writer.events()
        say(f"{writer.count('experiments_event'):,} events")
    say("their indexes")
    with connection.cursor() as cursor:
        cursor.execute("drop table bench_copy")


@contextmanager
def rebuilt(model: Any) -> Iterator[None]:
    """Without the model's own indexes meanwhile: made at the end they take a fraction of the time."""
    from django.db import connection

    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute("set constraints all immediate")  # in a transaction, what is still to be checked holds the table
        cursor.execute(
            "select indexname, indexdef from pg_indexes where tablename = %s and indexname not like '%%_pkey'", [table]
        )
        indexes = cursor.fetchall()
        for name, _ in indexes:
            cursor.execute(f'drop index "{name}"')
    yield
    with connection.cursor() as cursor:
        for _, definition in indexes:
            cursor.execute(definition)


class Writer:
    """copies: how many rows `bench_copy` has."""

    def __init__(self, copies: int) -> None:
        self.copies = copies
        self.bases: dict[str, int] = {}
        self.most: dict[str, int] = {}

    def count(self, table: str) -> int:
        return int(_value(f"select count(*) from {table}"))

    def experiments(self) -> None:
        from experiments.models import Experiment, Profile, Run

        self._copy(
            Experiment, "select id as template, 0 as r, id as old from experiments_experiment",
            team_id="c.team", name="c.name", origin="'uploaded'", label="''", sample="''", created_by_id="c.author",
            created_at="c.at", updated_at="c.at + random() * interval '30 days'", state="c.state", review="c.review",
            step_time_s="t.step_time_s * c.factor", best_speedup="t.best_speedup * (0.8 + random() * 0.4)",
        )  # fmt: skip
        parent = {"team_id": "c.team", "experiment_id": self.key("experiments_experiment")}
        self._copy(
            Profile, "select experiment_id as template, 0 as r, id as old from experiments_profile",
            **parent, step_time_s="t.step_time_s * c.factor", created_at="c.at", ingested_at="c.at",
        )  # fmt: skip
        self._copy(
            Run, "select experiment_id as template, 0 as r, id as old from experiments_run",
            **parent, profile_id=self.key("experiments_profile"), created_at="c.at", finished_at="c.at",
        )  # fmt: skip
        # The newest run of what failed, or waits for its configuration, is a second one.
        columns = "team_id, experiment_id, profile_id, status, failed_at, reason, failure, worker, attempts, created_at"
        _run(
            f"insert into experiments_run ({columns}) select c.team, {self.key('experiments_experiment')}, "
            f"{self.key('experiments_profile')}, c.state, case c.state when 'failed' then 'ingesting' else '' end, "
            "case c.state when 'failed' then 'The profile contains no device plane; record it again.' else '' end, "
            "'{}', '', 1, c.at from bench_copy c where c.state <> 'ready' order by c.n"
        )

    def analyses(self) -> None:
        from diagnosis.models import DiagnosisRecord, OpRow

        run = "join experiments_run run on run.id = x.run_id"
        self._copy(
            DiagnosisRecord, f"select run.experiment_id as template, 0 as r, x.id as old "
            f"from diagnosis_diagnosisrecord x {run}",
            team_id="c.team", run_id=self.key("experiments_run"), created_at="c.at",
        )  # fmt: skip
        self._copy(
            OpRow, "select run.experiment_id as template, o.rank as r, o.id as old from diagnosis_oprow o "
            f"join diagnosis_diagnosisrecord x on x.id = o.diagnosis_id {run}",
            "t.rank <= c.ops", diagnosis_id=self.key("diagnosis_diagnosisrecord"), time_s="t.time_s * c.factor",
        )  # fmt: skip

    def proposals(self) -> None:
        from proposals.models import Measurement, PlanRecord, Proposal

        self._copy(
            PlanRecord, "select run.experiment_id as template, 0 as r, x.id as old from proposals_planrecord x "
            "join experiments_run run on run.id = x.run_id",
            team_id="c.team", run_id=self.key("experiments_run"), created_at="c.at",
        )  # fmt: skip
        decided = "case when c.review = 'approved' and t.rank = 1 then 'approved' when c.review = 'rejected' "
        self._copy(
            Proposal, "select experiment_id as template, rank - 1 as r, id as old from proposals_proposal",
            team_id="c.team", experiment_id=self.key("experiments_experiment"),
            plan_id=self.key("proposals_planrecord"), status=f"{decided} then 'rejected' else 'proposed' end",
            predicted_step_time_s="t.predicted_step_time_s * c.factor", created_at="c.at",
        )  # fmt: skip
        _run(
            "insert into proposals_review (proposal_id, decision, comment, author_id, created_at) "
            "select p.id, p.status, 'Worth a trial in sweep ' || p.experiment_id / 40, e.created_by_id, "
            "p.created_at + random() * interval '5 days' from proposals_proposal p "
            "join experiments_experiment e on e.id = p.experiment_id where p.status <> 'proposed' "
            "and not exists (select from proposals_review r where r.proposal_id = p.id) order by p.id"
        )
        columns = {f.column: "null" if f.null else "''" for f in Measurement._meta.concrete_fields if f.name != "id"}
        values = {
            "team_id": "p.team_id", "proposal_id": "p.id", "experiment_id": "p.experiment_id",
            "run_id": "(select min(id) from experiments_run r where r.experiment_id = p.experiment_id)",
            "status": "'measured'", "outcome": "'faster'", "predicted_log_gain": "ln(p.predicted_speedup)",
            "predicted_sigma": "0.1", "predicted_confidence": "p.confidence",
            "before_step_time_s": "p.predicted_step_time_s * p.predicted_speedup",
            "after_step_time_s": "p.predicted_step_time_s", "speedup": "p.predicted_speedup * (0.9 + random() * 0.2)",
            "within_range": "random() < 0.8", "caveats": "'[]'", "analysis": "'{}'",
            "control": "'{}'", "created_at": "p.created_at",
            "measured_at": "p.created_at",
        }  # fmt: skip
        names = ", ".join(sorted(columns))
        given = ", ".join((columns | values)[name] for name in sorted(columns))
        _run(
            f"insert into proposals_measurement ({names}) select {given} from proposals_proposal p "
            "where p.status = 'approved' and p.id % 2 = 0 and p.predicted_speedup > 0 "
            "and not exists (select from proposals_measurement m where m.proposal_id = p.id) order by p.id"
        )

    def conversations(self) -> None:
        from dialogue.models import Message, Thread

        self._copy(
            Thread, "select experiment_id as template, 0 as r, id as old from dialogue_thread",
            team_id="c.team", experiment_id=self.key("experiments_experiment"), created_by_id="c.author",
            created_at="c.at", updated_at="c.at",
        )  # fmt: skip
        numbered = (
            "select thread.experiment_id as template, row_number() over (partition by thread.experiment_id order by "
            "m.id) - 1 as r, m.id as old from dialogue_message m join dialogue_thread thread on thread.id = m.thread_id"
        )
        # Before it is copied the source is as it was: a question is answered by the message after it.
        self._copy(
            Message, numbered, thread_id=self.key("dialogue_thread"), created_at="c.at", author_id="case when "
            "t.author_id is not null then c.author end",
            question_id="case when t.question_id is not null then {own} - 1 end",
        )  # fmt: skip

    def events(self) -> None:
        """A template's events, and those of its conversation again and again until a copy has as many as it should."""
        from experiments.models import Event

        _run(
            "create unlogged table bench_event as select experiment_id as template, row_number() over (partition by "
            "experiment_id order by id) - 1 as r, count(*) over (partition by experiment_id) as k, "
            "count(thread) over (partition by experiment_id order by id) - 1 as said, "
            "count(thread) over (partition by experiment_id) as all_said, "
            "(select min(id) from dialogue_message m where m.thread_id = e.thread) as first_message, e.* "
            "from experiments_event e"
        )
        base = int(_value("select max(id) from experiments_event")) + 1
        number = "case g when 0 then t.r else t.k + (g - 1) * t.all_said + t.said end"
        message = f"{self.key('dialogue_message')} + t.message - t.first_message"
        changed = {
            "id": f"{base} + c.first_event + ({number})", "team_id": "c.team",
            "experiment_id": self.key("experiments_experiment"), "run_id": self.key("experiments_run"),
            "user_id": "case when t.user_id is not null then c.author end",
            "created_at": f"c.at + ({number}) * interval '20 seconds'",
            "thread": f"case when t.thread is not null then {self.key('dialogue_thread')} end",
            "message": f"case when t.message is not null then {message} end",
            "words": "t.words || array_to_tsvector(array['run-' || c.n])",
        }  # fmt: skip
        columns = [f.column for f in Event._meta.concrete_fields]
        values = ", ".join(changed.get(name, f"t.{name}") for name in columns)
        for start in range(0, self.copies, AT_ONCE):
            _run(
                f"insert into experiments_event ({', '.join(columns)}) select {values} from bench_copy c "
                "join bench_event t on t.template = c.template "
                "cross join lateral generate_series(0, 1 + greatest(0, c.events - t.k) / t.all_said) g "
                f"where (g = 0 or t.thread is not null) and {number} < c.events "
                f"and c.n >= {start} and c.n < {start + AT_ONCE} order by 1"
            )
        _forward("experiments_event")
        _run("drop table bench_event")

    def key(self, table: str, r: str = "0") -> str:
        """SQL of the primary key of a copied row."""
        return f"({self.bases[table]} + c.n::bigint * {self.most[table]} + {r})"

    def _copy(self, model: Any, source: str, only: str = "true", **changed: str) -> None:
        """source: a query of (template, r, old): the r-th row of a template, and its primary key."""
        table = model._meta.db_table
        self.bases[table] = int(_value(f"select max(id) from {table}")) + 1
        self.most[table] = int(_value(f"select max(r) from ({source}) s")) + 1
        own = self.key(table, "s.r")
        columns = [f.column for f in model._meta.concrete_fields]
        values = ", ".join(
            own if name == "id" else changed[name].replace("{own}", own) if name in changed else f"t.{name}"
            for name in columns
        )
        _run(f"create unlogged table bench_source as {source}")
        for start in range(0, self.copies, AT_ONCE):
            _run(
                f"insert into {table} ({', '.join(columns)}) select {values} from bench_copy c "
                f"join bench_source s on s.template = c.template join {table} t on t.id = s.old "
                f"where {only} and c.n >= {start} and c.n < {start + AT_ONCE} order by c.n, s.r"
            )
        _run("drop table bench_source")
        _forward(table)


def _forward(table: str) -> None:
    """Let the next row that the product writes have the next primary key."""
    _run(f"select setval(pg_get_serial_sequence('{table}', 'id'), (select max(id) from {table}))")


def _run(statement: str) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)


def _value(statement: str) -> Any:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]
