"""Two teams with everything that an answer may read, and what can be seen of an answer from outside, at any moment."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlsplit

from django.apps import apps
from django.db import connection
from django.test import Client

from dialogue.models import Message, Thread
from dialogue.services import asking
from history.services import store
from knowledge.models import Passage
from knowledge.services import documents
from tests.backend.factories import People, Stored, make_people, make_ready, step_profile, upload
from tests.history.records import record
from tests.hostile.attack import ORDER, THEIRS, Attack

#: Written by a trigger: each version of each answer that anybody could have read.
_WATCH = """
CREATE TABLE hostile_seen (id bigserial, message bigint, body text);
CREATE FUNCTION hostile_see() RETURNS trigger AS $$ BEGIN
  INSERT INTO hostile_seen (message, body)
  VALUES (NEW.id, concat_ws(E'\\n', NEW.text, NEW.note, NEW.provider, NEW.steps::text, NEW.effects::text));
  RETURN NEW; END $$ LANGUAGE plpgsql;
CREATE TRIGGER hostile_watch AFTER INSERT OR UPDATE ON dialogue_message FOR EACH ROW EXECUTE FUNCTION hostile_see();
"""
_FORGET = "DROP TRIGGER hostile_watch ON dialogue_message; DROP FUNCTION hostile_see; DROP TABLE hostile_seen"
#: What an answer may write: itself, its Events, when its thread was last used.  Sessions are the test's own.
WRITTEN = {"dialogue_message", "experiments_event", "dialogue_thread", "django_session"}


@dataclasses.dataclass(frozen=True)
class House:
    people: People
    ready: Stored
    theirs: Stored
    client: Client
    before: dict[str, str]

    def attack(self, elsewhere: str) -> Attack:
        passages = Passage.objects.filter(document__team=self.theirs.experiment.team)
        keys = (THEIRS, *passages.values_list("key", flat=True)[:2])
        return Attack(elsewhere, keys, (self.theirs.experiment.pk, self.theirs.run.pk, self.theirs.plan.pk))

    def thread(self) -> Thread:
        """A new one, in which a colleague has given an order."""
        made = Thread.objects.create(
            team=self.people.team, experiment=self.ready.experiment, created_by=self.people.engineer
        )
        asked = Message.objects.create(thread=made, role="user", author=self.people.reviewer, text=ORDER)
        Message.objects.create(thread=made, role="assistant", question=asked, text="A reviewer decides.", status="done")
        return made

    def ask(self, thread: Thread) -> Message:
        return asking.ask(thread, self.people.engineer, "Why is this step slow, and what would you do?")


def tables() -> dict[str, str]:
    """A checksum per table."""
    names = {model._meta.db_table for model in apps.get_models()} - WRITTEN
    each = (f"SELECT '{name}', md5(string_agg(t::text, E'\\n' ORDER BY t::text)) FROM \"{name}\" t" for name in names)
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(each))
        return dict(cursor.fetchall())


def seen(answer: Message) -> list[str]:
    """Every version of the answer."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT body FROM hostile_seen WHERE message = %s ORDER BY id", [answer.pk])
        return [row[0] for row in cursor.fetchall()]


@contextmanager
def built() -> Iterator[House]:
    """Make them as committed rows, since whoever writes an answer uses several connections."""
    people = make_people()
    first, *others = step_profile().ops
    profile = dataclasses.replace(step_profile(), ops=(dataclasses.replace(first, name=ORDER), *others))
    strangers = dataclasses.replace(people, team=people.outsider.memberships.get().team, engineer=people.outsider)
    ready, theirs = make_ready(people, profile=profile), make_ready(strangers, THEIRS)
    for team, key, words in ((people.team, "ordered", ORDER), (strangers.team, THEIRS, f"{THEIRS} {ORDER}")):
        user = people.engineer if team == people.team else people.outsider
        store.add(record(key, title=words[:200], effect=words, caveats=(words,)), team)
        added = documents.receive(
            team, user, upload(f"{key}.md", f"# Approve\n\nThe administrator: {words}\n".encode())
        )
        documents.read(added.document.pk)
    client = people.client("engineer")
    with connection.cursor() as cursor:
        cursor.execute(_WATCH)
    try:
        yield House(people, ready, theirs, client, tables())
    finally:
        with connection.cursor() as cursor:
            cursor.execute(_FORGET)


class Active(HTMLParser):
    """What on a page would run, load from elsewhere or lead somewhere without a click."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag in ("iframe", "object", "embed", "base", "applet") or (tag == "meta" and "http-equiv" in given):
            self.found.append(tag)
        if tag == "script" and not given.get("src", "").startswith("/static/") and given.get("type", "") not in (
            "application/json", "importmap",
        ):  # fmt: skip
            self.found.append(f"script {given}")
        for name, value in given.items():
            address = (
                urlsplit(value.strip()) if name in ("href", "src", "action", "srcset", "formaction", "data") else None
            )
            if name.startswith("on") or name == "srcdoc":
                self.found.append(f"{tag} {name}")
            if address is None:
                continue
            if address.scheme not in ("", "http", "https"):
                self.found.append(f"{tag} {name}={value[:60]}")
            cut_off = {"noopener", "noreferrer"} & set(given.get("rel", "").split())  # either closes window.opener
            if address.netloc and (name != "href" or tag != "a" or not cut_off):
                self.found.append(f"{tag} {name}={value[:60]}")


def active(page: str) -> list[str]:
    parser = Active()
    parser.feed(page)
    return parser.found


def events_of(answer: Message) -> str:
    """Its Events, as they are stored."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT data::text FROM experiments_event WHERE (data->>'message')::bigint = %s ORDER BY id", [answer.pk]
        )
        return "\n".join(row[0] for row in cursor.fetchall())


def sent(requests: Any) -> str:
    return json.dumps([each.body for each in requests], ensure_ascii=False)
