"""Every page and list sends as many queries for a team of 160 experiments as for one of 60."""

from __future__ import annotations

import numpy as np
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from bench.history import records
from bench.population import copies, routes
from bench.population.build import Sizes, plan
from dialogue.services import asking, computing
from history.services.store import add_many
from knowledge.models import Document, Kind, Passage, stamped
from tests.dialogue.answerers import answered, model_set_up

pytestmark = pytest.mark.slow

FEW, MORE = 60, 100


def fill(people, ready, count: int, number: int) -> None:
    """So many further experiments of the team with all that hangs on them, records, passages and documents."""
    sizes = Sizes(experiments=count + 1, events=60 * count)
    rows = plan(sizes, [people.team], [ready.experiment], np.random.default_rng(number))
    copies.make([ready.experiment], rows, lambda line: None)
    add_many(records(2 * (count + number))[2 * number :], people.team, None)
    document = Document.objects.create(
        team=people.team, kind=Kind.TEXT, title=f"Notes {number}", name=f"notes-{number}.md", sha256=str(number)
    )
    Passage.objects.bulk_create(
        stamped(
            Passage(
                document=document, team=people.team, key=f"note-{number}-{n}", position=n, title=f"All-gather {n}",
                text="An all-gather overlaps with the matmul.", bottlenecks=["communication"],
            )
            for n in range(count)
        )
    )  # fmt: skip


@pytest.fixture
def conversation(people, ready) -> None:
    thread = asking.open_thread(ready.experiment, people.engineer)
    with model_set_up():
        for question in ("Why is it slow?", "What if remat none?"):
            answered(asking.ask(thread, people.engineer, question).pk)
    computing.keep(thread, people.engineer, "which_first", {})


def test_every_route_that_is_read_is_opened_here_or_says_why_not():
    read = set(routes.opened_by_get())
    opened = set(routes.addresses(routes.Rows(*[1] * 16, "key", 1)))
    assert not opened & set(routes.NOT_OPENED)
    assert opened | set(routes.NOT_OPENED) == read


def test_no_page_and_no_list_sends_a_query_for_each_row(people, ready, conversation):
    fill(people, ready, FEW, 0)
    client = people.client("administrator")
    rows = routes.rows_of(people.team)
    addresses = [address for found in routes.addresses(rows).values() for address in found]

    def queries(address: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            client.get(address, follow=True)
        return len(captured)

    # What is kept in the process is made; the short profile of the tests has all that is opened but one figure.
    refused = {address for address in addresses if client.get(address, follow=True).status_code != 200}
    assert refused <= {address for address in addresses if "/evidence/" in address}
    few = {address: queries(address) for address in addresses}
    fill(people, ready, MORE, FEW)
    many = {address: queries(address) for address in addresses}
    assert {address: (few[address], n) for address, n in many.items() if n > few[address]} == {}
