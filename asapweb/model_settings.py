"""The settings of the language model as a page shows them, a test of the connection, and how long payloads are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache

from accounts.models import Role
from accounts.pages import page_or_part, refusals_as_messages
from accounts.permissions import MemberRequest, require
from agent.check_connection import ConnectionReport, check_connection
from agent.limits import Price
from agent.provider.settings import SettingsError
from experiments.services import retention
from formatting import counted, dollars, limit
from proposals.agents import endpoint

#: Who asks a model, and for what.
AGENTS = (
    ("coordinator", "Coordinator", "answers in dialogues"),
    ("analyzer", "Analyzer", "writes the report"),
    ("proposer", "Proposer", "writes the rationale of proposals"),
    ("tuner", "Tuner", "suggests trials in campaigns that use it"),
)


@dataclass(frozen=True)
class Shown:
    """What a page may show of the settings: never the key.

    problem: one sentence, where a variable cannot be used or something is missing; "" where a model can be asked.
    """

    problem: str
    configured: bool = False
    base_url: str = ""
    key: str = "not set"
    agents: tuple[tuple[str, str, str, str], ...] = ()
    limits: tuple[tuple[str, str], ...] = ()
    prices: tuple[tuple[str, str, str], ...] = ()

    @property
    def models(self) -> list[tuple[str, str]]:
        """Each different model with an agent that has it."""
        agent_of: dict[str, str] = {}
        for agent, _, _, model in self.agents:
            agent_of.setdefault(model, agent)
        return [(agent, model) for model, agent in agent_of.items() if model]


def shown() -> Shown:
    """The settings of this installation as they may be shown."""
    try:
        settings = endpoint.settings()
    except SettingsError as error:
        return Shown(str(error))
    limits, money = settings.limits, "no limit"
    if limits.cost_usd is not None:
        money = dollars(limits.cost_usd)
    return Shown(
        problem=settings.missing() or "",
        configured=settings.configured,
        base_url=settings.base_url,
        key="set" if settings.api_key else "not set",
        agents=tuple((name, word, what, settings.model_for(name)) for name, word, what in AGENTS),
        limits=(
            ("Turns", f"{limits.turns:,}"),
            ("Tool calls", f"{limits.tool_calls:,}"),
            ("Input and output tokens", f"{limits.tokens:,}"),
            ("Tokens per response", f"{limits.answer_tokens:,}"),
            ("Time", limit(limits.time_s, "s")),
            ("Cost", money),
            ("Timeouts: connect, read, request",
             f"{settings.connect_timeout_s:g} · {settings.read_timeout_s:g} · {settings.request_timeout_s:g}\u00a0s"),
        ),
        prices=tuple((model, *_price(price)) for model, price in sorted(settings.prices.items())),
    )  # fmt: skip


def _price(price: Price) -> tuple[str, str]:
    """Return USD per million tokens: in, out."""
    return dollars(price.input), dollars(price.output)


def _page(request: MemberRequest, report: ConnectionReport | None = None) -> HttpResponse:
    context: dict[str, Any] = {
        "here": "settings",
        "membership": request.membership,
        "shown": shown(),
        "report": report,
    }
    return page_or_part(request, "settings/model.html", "settings/_connection.html", context)


@never_cache
@require(Role.VIEWER, "GET")
def model(request: MemberRequest) -> HttpResponse:
    """Which language model is configured, within which limits, and what is missing."""
    return _page(request)


@never_cache
@require(Role.ADMINISTRATOR, "POST", htmx=True)
def test_model(request: MemberRequest) -> HttpResponse:
    """Ask the model for a word, a tool call and an object, and say what came of it."""
    agent = request.POST.get("agent", "")
    if agent not in {name for name, _, _ in AGENTS}:
        agent = AGENTS[0][0]
    try:
        known = endpoint.settings()
        connect_s, read_s = min(known.connect_timeout_s, 5.0), min(known.read_timeout_s, 20.0)
        report = check_connection(replace(known, connect_timeout_s=connect_s, read_timeout_s=read_s), agent)
    except SettingsError as error:
        report = ConnectionReport(False, str(error), "", "")
    return _page(request, report)


@require(Role.ADMINISTRATOR, "POST")
def keep_payloads(request: MemberRequest) -> HttpResponse:
    """How many days the team keeps what agents sent and got."""
    with refusals_as_messages(request):
        days = retention.set_days(request.membership.team, request.POST.get("days", ""), by=request.user)
        kept = "as long as their experiment" if days is None else counted(days, "day")
        messages.success(request, f"Agent payloads are kept for {kept}.")
    return redirect("settings")
