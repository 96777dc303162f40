"""No connection to the database to be had: said as such, in the form asked for, and no fault of our code."""

from __future__ import annotations

import json

import pytest
from django.core.handlers.exception import response_for_exception
from django.db import OperationalError, connection
from django.test import RequestFactory


def answered(error: Exception, path: str):
    """As Django's handler answers a request during which this was raised."""
    try:
        raise error
    except Exception as raised:
        return response_for_exception(RequestFactory().get(path), raised)


@pytest.mark.parametrize("path", ["/experiments/", "/api/experiments/"])
def test_a_pool_without_a_free_connection_is_503(path):
    answer = answered(OperationalError("couldn't get a connection after 10.00 sec"), path)
    assert answer.status_code == 503 and answer["Retry-After"] == "10"
    text = answer.content.decode()
    assert "try again in a few seconds" in (json.loads(text)["detail"] if path.startswith("/api/") else text)


def test_other_errors_are_still_ours():
    answer = answered(ZeroDivisionError(), "/api/experiments/")
    assert answer.status_code == 500 and "it has been logged" in json.loads(answer.content)["detail"]


def test_an_unreachable_database_is_503(client, settings, db):
    """A real one: the server of this name refuses."""
    connection.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connection.settings_dict, "HOST", "/nowhere")
        client.raise_request_exception = False
        assert client.get("/sign-in/?next=/").status_code in (200, 302)  # needs none
        answer = client.post("/sign-in/", {"username": "a", "password": "b"})
    assert answer.status_code == 503
