"""Who may do what at every address of the site, from docs/accounts.md and the docs page of each area.

A row is an address with a method, and the least role that may use it, in the team of the object that the address or the
body names, else in the team chosen.  `ANYONE` may without signing in, `SIGNED_IN` without a team, `NOBODY` though they
have a role: what it is about is one's own.  Addresses and bodies name objects of tests/permissions/objects.py.

Each address has the methods given here, HEAD where it has GET, and no others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from accounts.models import Role
from tests.backend.factories import CONFIG

ANYONE, SIGNED_IN, NOBODY = "anyone", "signed in", "nobody"
VIEWER, ENGINEER, REVIEWER, ADMINISTRATOR = (str(role) for role in Role)


@dataclass(frozen=True)
class Row:
    """stores: who may changes something by it.  also: by name, who may whatever their role, as it is theirs.

    refused: the status for who may not, where it is no 403 or 404.  unknown: that for an object which the team has not.
    missing: there is nothing to show on this site.
    """

    method: str
    address: str
    least: str
    body: dict[str, Any] = field(default_factory=dict)
    stores: bool = False
    also: str = ""
    refused: int | None = None
    unknown: int = 404
    missing: bool = False

    @property
    def of_object(self) -> bool:
        """Whether it is about an object of the first team, not about whatever one's own team has."""
        return "{" in self.address or any(_names_object(value) for value in self.body.values())


def _names_object(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\{[\w.]+\}", value) is not None


def reads(least: str, addresses: str, **more: Any) -> Iterator[Row]:
    for address in addresses.split():
        yield Row("get", address, least, **more)


def asks(least: str, address: str, /, **body: Any) -> Row:
    """A POST that answers and stores nothing."""
    return Row("post", address, least, body)


def stores(least: str, address: str, /, **body: Any) -> Row:
    return Row("post", address, least, body, stores=True)


def deletes(least: str, address: str, **more: Any) -> Row:
    return Row("delete", address, least, stores=True, **more)


#: In place of a file of this ending.
PROFILE, NOTES, RECORDS = "file: host0.xplane.pb", "file: notes.md", "file: records.csv"
MEASURED = CONFIG | {"measured": {"step_time_s": 1.5}}
AS_FILE = {"config_way": "file", "config_text": json.dumps(CONFIG)}
MEASURED_AS_FILE = {"config_way": "file", "config_text": json.dumps(MEASURED)}
MESH = {"ici": {"replica": 1, "data": 2, "seq": 8, "model": 1}, "dcn": {"data": 1}}
MESH_TEXT = " ".join(f"{axis}={size}" for axis, size in {**MESH["ici"], "dcn.data": 1}.items())
NEW_PASSWORD = dict.fromkeys(("new_password1", "new_password2"), "staple battery horse")

ACCOUNTS = (
    *reads(ANYONE, "/sign-in/ /sign-in/{link}/"),
    *reads(SIGNED_IN, "/join/{join}/ /api/me/ /api/tokens/"),
    *reads(VIEWER, "/settings/ /settings/password/ /settings/model/"),
    *reads(ADMINISTRATOR, "/settings/audit/ /settings/audit/csv/ /settings/audit/jsonl/ /api/audit/"),
    asks(ANYONE, "/sign-in/", username="administrator", password="a guess"),
    stores(ANYONE, "/sign-in/{link}/"),  # who holds it, signs in by it
    Row("post", "/join/{join}/", NOBODY, stores=True, also="guest", refused=403),
    asks(ANYONE, "/sign-out/", anyway="1"),
    asks(VIEWER, "/settings/team/", team="0"),
    stores(VIEWER, "/settings/password/", old_password="the old password", **NEW_PASSWORD),
    stores(VIEWER, "/settings/tokens/"),
    Row("post", "/settings/tokens/{token}/revoke/", NOBODY, stores=True, also="author", refused=302),
    Row("post", "/api/tokens/", SIGNED_IN, stores=True, also="by session"),  # a token makes no tokens
    deletes(NOBODY, "/api/tokens/{token}/", also="author", refused=404),
    stores(ADMINISTRATOR, "/settings/members/", username="newcomer", role=VIEWER),
    stores(ADMINISTRATOR, "/settings/members/{member}/", role=REVIEWER),
    stores(ADMINISTRATOR, "/settings/members/{member}/link/"),
    # As for one that was accepted or withdrawn meanwhile: back to the settings, which say so.
    Row("post", "/settings/invitations/{invitation}/withdraw/", ADMINISTRATOR, stores=True, unknown=302),
    stores(ADMINISTRATOR, "/settings/retention/", days=30),
    asks(ADMINISTRATOR, "/settings/model/test/"),
)

OVERVIEW = (
    *reads(VIEWER, "/ /experiments/?q=a /jump/?q=a /explore/ /accuracy/ /experiments/{experiment}/explore/"),
    *reads(ANYONE, "/api/docs/ /api/schema/"),  # the same on every site; they hold nothing of a team
    *reads(SIGNED_IN, "/api/"),
    asks(VIEWER, "/explore/model/", config_json="{}"),
    asks(SIGNED_IN, "/api/predict/", config=CONFIG),
    asks(SIGNED_IN, "/api/search/", config=CONFIG),
)

CAMPAIGNS = (
    *reads(
        VIEWER,
        """
        /experiments/{experiment}/campaigns/ /campaigns/{campaign}/ /campaigns/{campaign}/difference/
        /campaigns/{campaign}/trials.csv
        /api/campaigns/{campaign}/ /api/campaigns/{campaign}/trials/
        """,
    ),
    *reads(SIGNED_IN, "/api/campaigns/"),
    stores(ENGINEER, "/experiments/{experiment}/campaigns/", backend="modelled", most_trials=3, parallel=1),
    stores(ENGINEER, "/campaigns/{campaign}/change/", change="pause"),
    stores(ENGINEER, "/campaigns/{campaign}/trials/0/retry/"),
    stores(ENGINEER, "/api/campaigns/", experiment="{experiment}", most_trials=3),
    stores(ENGINEER, "/api/campaigns/{campaign}/change/", change="pause"),
    stores(ENGINEER, "/api/campaigns/{campaign}/retry/", number=0),
)

EXPERIMENTS = (
    *reads(
        VIEWER,
        """
        /experiments/{experiment}/configuration/ /experiments/{experiment}/events/ /experiments/{experiment}/progress/
        /experiments/{experiment}/xprof/ /experiments/{experiment}/profile.zip /experiments/{experiment}/hbm/
        /experiments/{experiment}/memory/ /experiments/{experiment}/memory/{event}/
        /experiments/{experiment}/memory/{event}/data/ /experiments/{experiment}/memory.jsonl
        /api/experiments/{experiment}/ /api/experiments/{experiment}/configuration/
        /api/experiments/{experiment}/events/ /api/experiments/{experiment}/events.jsonl/
        /api/profiles/{profile}/ /api/profiles/{profile}/data/ /api/runs/{run}/
        """,
    ),
    *reads(NOBODY, "/experiments/{experiment}/xprof/pages/a-token/data/plugin/profile/", refused=404),  # by its link
    *reads(SIGNED_IN, "/api/experiments/ /api/profiles/ /api/runs/"),
    *reads(VIEWER, "/experiments/picked/ /experiments/table.csv"),
    stores(ENGINEER, "/experiments/views/", name="fsdp", view="q=fsdp"),
    stores(ENGINEER, "/experiments/views/{view}/delete/"),
    *reads(
        ENGINEER,
        """
        /experiments/new/ /experiments/new/step-time/ /experiments/{undecided}/delete/
        """,
    ),
    stores(ENGINEER, "/experiments/new/", files=PROFILE, name="new"),
    stores(ENGINEER, "/experiments/new/step-time/", **MEASURED_AS_FILE),
    asks(VIEWER, "/experiments/configuration/check/", experiment="{experiment}", way="form"),
    stores(ENGINEER, "/experiments/{undecided}/configuration/", **AS_FILE),
    stores(ENGINEER, "/experiments/{failed}/retry/"),
    stores(ENGINEER, "/experiments/{failed}/files/", files=PROFILE),
    stores(ENGINEER, "/experiments/{failed}/hosts/exclude/", host="host1.xplane.pb"),
    stores(ENGINEER, "/experiments/{undecided}/delete/"),
    stores(ADMINISTRATOR, "/experiments/{experiment}/delete/"),  # a reviewer decided on its proposals
    asks(VIEWER, "/experiments/{failed}/xprof/"),
    asks(VIEWER, "/experiments/{failed}/xprof/stop/"),
    stores(ENGINEER, "/api/experiments/", files=PROFILE),
    stores(ENGINEER, "/api/experiments/step-time/", config=MEASURED),
    Row("put", "/api/experiments/{undecided}/configuration/", ENGINEER, CONFIG, stores=True),
    deletes(ENGINEER, "/api/experiments/{undecided}/"),
    deletes(ADMINISTRATOR, "/api/experiments/{experiment}/"),
    stores(ENGINEER, "/api/runs/{failed_run}/retry/"),
)

DIAGNOSIS = (
    *reads(
        VIEWER,
        """
        /experiments/{experiment}/ /experiments/{experiment}/ops/ /experiments/{experiment}/ops/1/
        /experiments/{experiment}/report/ /experiments/{experiment}/report.md
        /experiments/{experiment}/report.json /experiments/{experiment}/evidence/bottleneck-0/
        /experiments/{experiment}/timeline/ /experiments/{experiment}/timeline/tiles/x/44/0/
        /experiments/{experiment}/timeline/sums/?t0=0&t1=1 /experiments/{experiment}/timeline/spans/?q=op
        /experiments/{experiment}/timeline/event/?track=0&t=0.000001&slack=1
        /experiments/{experiment}/timeline/perfetto.json.gz
        /compare/?a={profile}&b={other_profile} /compare/ops/?a={profile}&b={other_profile}
        /compare/evidence/0/?a={profile}&b={other_profile} /api/compare/?a={profile}&b={other_profile}
        /api/diagnoses/{diagnosis}/ /api/diagnoses/{diagnosis}/ops/
        """,
    ),
    *reads(SIGNED_IN, "/api/diagnoses/"),
    stores(ENGINEER, "/experiments/{experiment}/recording/", kind="decode"),
    Row("put", "/api/diagnoses/{diagnosis}/recording/", ENGINEER, {"program": "convolutional"}, stores=True),
)

KNOWLEDGE = (
    *reads(
        VIEWER,
        """
        /knowledge/?q=all-gather /knowledge/passages/{passage}/ /knowledge/documents/ /knowledge/documents/{document}/
        /knowledge/documents/{document}/file/ /api/knowledge/passages/{passage}/ /api/knowledge/documents/{document}/
        """,
    ),
    *reads(SIGNED_IN, "/api/knowledge/search/?q=notes /api/knowledge/passages/ /api/knowledge/documents/"),
    *reads(ADMINISTRATOR, "/knowledge/documents/{document}/delete/", also="author"),
    stores(ENGINEER, "/knowledge/documents/", file=NOTES),
    Row("post", "/knowledge/documents/{document}/delete/", ADMINISTRATOR, stores=True, also="author"),
    stores(ENGINEER, "/api/knowledge/documents/", file=NOTES),
    deletes(ADMINISTRATOR, "/api/knowledge/documents/{document}/", also="author"),
)

HISTORY = (
    *reads(
        VIEWER,
        """
        /history/ /history/{record}/ /history/export.csv /history/cited/{key}/ /history/waiting/
        /history/import/{import}/
        /api/history/records/{record}/ /api/history/records/{record}/similar/ /api/history/imports/{import}/
        """,
    ),
    *reads(SIGNED_IN, "/api/history/records/ /api/history/records/export/ /api/history/imports/"),
    *reads(ENGINEER, "/history/import/"),
    *reads(ADMINISTRATOR, "/history/{record}/delete/"),
    stores(ADMINISTRATOR, "/history/{record}/delete/"),
    stores(ENGINEER, "/history/import/", file=RECORDS),
    deletes(ADMINISTRATOR, "/api/history/records/{record}/"),
    stores(ENGINEER, "/api/history/imports/", file=RECORDS),
)

PROPOSALS = (
    *reads(
        VIEWER,
        """
        /experiments/{experiment}/proposals/ /experiments/{experiment}/proposals/rejected/
        /experiments/{experiment}/proposals/asked/ /experiments/{experiment}/consultation/
        /experiments/{experiment}/launch/ /plans/{plan}/own/ /proposals/{proposal}/launch/
        /proposals/{proposal}/launch/launch.zip /measurements/ /plans/{plan}/compile/state/
        /api/plans/{plan}/compilations/
        /api/plans/{plan}/ /api/proposals/{proposal}/ /api/proposals/{proposal}/launch/
        /api/measurements/{measurement}/ /api/plan-requests/{request}/
        """,
    ),
    *reads(
        SIGNED_IN,
        """
        /api/plans/ /api/proposals/ /api/reviews/ /api/measurements/ /api/measurements/summary/ /api/plan-requests/
        """,
    ),
    *reads(ENGINEER, "/proposals/{approved}/upload/ /proposals/{approved}/step-time/"),
    stores(REVIEWER, "/proposals/{proposal}/decision/", decision="approved"),
    stores(REVIEWER, "/api/reviews/", proposal="{proposal}", decision="rejected"),
    stores(ENGINEER, "/experiments/{experiment}/proposals/again/"),
    stores(ENGINEER, "/api/plan-requests/", experiment="{experiment}"),
    stores(ENGINEER, "/experiments/{experiment}/consultation/ask/"),
    asks(ENGINEER, "/plans/{plan}/compile/"),  # no compiler is installed here
    stores(ENGINEER, "/plans/{plan}/compile/cancel/"),
    asks(ENGINEER, "/api/plans/{plan}/compilations/"),
    deletes(ENGINEER, "/api/plans/{plan}/compilations/"),
    asks(VIEWER, "/api/plans/{plan}/evaluate/", mesh=MESH, changes={}),
    stores(ENGINEER, "/plans/{plan}/own/add/", config=MESH_TEXT),
    stores(ENGINEER, "/api/plans/{plan}/proposals/", mesh=MESH, changes={}),
    stores(ENGINEER, "/proposals/{approved}/upload/", files=PROFILE, **AS_FILE),
    stores(ENGINEER, "/proposals/{approved}/step-time/", **MEASURED_AS_FILE),
    stores(ENGINEER, "/proposals/{approved}/measurement/", experiment="{rerun}"),
    stores(ENGINEER, "/proposals/{linked}/measurement/unlink/"),
    stores(ENGINEER, "/proposals/{approved}/measurement/failed/", failure="hang"),
    asks(ENGINEER, "/proposals/{approved}/measurement/failed/cause/", comment="CUDA out of memory."),
    stores(ENGINEER, "/api/measurements/", proposal="{approved}", experiment="{rerun}"),
    deletes(ENGINEER, "/api/measurements/{measurement}/"),
)

LAUNCHES = (
    *reads(ANYONE, "/asap_report.py"),
    *reads(
        VIEWER,
        """
        /proposals/{approved}/launches/ /launches/{launch}/ /launches/{launch}/bundle/control.zip /settings/launching/
        /api/launches/{launch}/ /api/launches/{launch}/bundle/control/
        """,
    ),
    *reads(SIGNED_IN, "/api/launches/"),
    *reads(ENGINEER, "/api/launches/{launch}/runs/proposal/1/files/{report_file}/"),
    stores(ENGINEER, "/proposals/{approved}/launches/", tool="maxtext", repeats="2", steps="10"),
    stores(ENGINEER, "/launches/{launch}/cancel/"),
    stores(ENGINEER, "/launches/{launch}/token/"),
    stores(ADMINISTRATOR, "/settings/launching/", backend="manual", setup="module load jax"),
    stores(ENGINEER, "/api/launches/", proposal="{approved}", tool="maxtext"),
    stores(ENGINEER, "/api/launches/{launch}/cancel/"),
    stores(
        ENGINEER, "/api/launches/{launch}/runs/proposal/1/files/", kind="log", name="a", size_bytes=1, sha256="0" * 64
    ),
    Row("patch", "/api/launches/{launch}/runs/proposal/1/files/{report_file}/", ENGINEER),  # without bytes
    Row("put", "/api/launches/{launch}/runs/proposal/1/report/", ENGINEER, {"step_times_s": [1.0]}, stores=True),
)

DIALOGUE = (
    *reads(
        VIEWER,
        """
        /experiments/{experiment}/dialogue/ /experiments/{experiment}/dialogue/{thread}/
        /experiments/{experiment}/dialogue/panel/
        /experiments/{experiment}/compute/?q=cost /experiments/{experiment}/compute/verdict/
        /experiments/{experiment}/compute/verdict/row/ /experiments/{experiment}/number/?target=kpi:mfu
        /answers/{answer}/ /answers/{answer}/stream/
        /api/threads/{thread}/ /api/threads/{thread}/messages/ /api/answers/{answer}/ /api/held/{held}/
        """,
    ),
    *reads(SIGNED_IN, "/api/tools/"),
    asks(VIEWER, "/api/tools/hardware/", experiment="{experiment}", arguments={}),
    *reads(SIGNED_IN, "/api/threads/ /api/held/"),
    *reads(ENGINEER, "/experiments/{experiment}/replay/{answer}/"),
    *reads(ENGINEER, "/experiments/{experiment}/replay/run/{run}/analyzer/", missing=True),
    stores(ENGINEER, "/experiments/{experiment}/dialogue/ask/", text="Why not model 1?"),
    stores(ENGINEER, "/experiments/{experiment}/compute/verdict/"),
    stores(ENGINEER, "/experiments/{experiment}/dialogue/hold/", text="model=1"),
    stores(ENGINEER, "/answers/{answer}/cards/1/hold/"),
    stores(ENGINEER, "/threads/{thread}/propose/"),
    Row("post", "/threads/{thread}/delete/", ADMINISTRATOR, stores=True, also="author"),
    stores(ENGINEER, "/answers/{queued}/stop/"),
    stores(ENGINEER, "/answers/{answer}/retry/"),
    stores(ENGINEER, "/answers/{answer}/offers/0/add/"),
    stores(ENGINEER, "/held/{held}/release/"),
    stores(ENGINEER, "/api/threads/", experiment="{undecided}"),
    deletes(ADMINISTRATOR, "/api/threads/{thread}/", also="author"),
    stores(ENGINEER, "/api/threads/{thread}/messages/", text="Why not model 1?"),
    stores(ENGINEER, "/api/threads/{thread}/propose/"),
    stores(ENGINEER, "/api/answers/{queued}/stop/"),
    stores(ENGINEER, "/api/answers/{answer}/retry/"),
    stores(ENGINEER, "/api/answers/{answer}/cards/", effect=1, hold=True),
    stores(ENGINEER, "/api/answers/{answer}/proposals/", effect=0),
    deletes(ENGINEER, "/api/held/{held}/"),
)

AREAS = {
    "accounts": ACCOUNTS,
    "overview": OVERVIEW,
    "experiments": EXPERIMENTS,
    "campaigns": CAMPAIGNS,
    "diagnosis": DIAGNOSIS,
    "knowledge": KNOWLEDGE,
    "history": HISTORY,
    "proposals": PROPOSALS,
    "launches": LAUNCHES,
    "dialogue": DIALOGUE,
}
ROWS = tuple(row for rows in AREAS.values() for row in rows)
#: Answered by server-sent events; they give their database connection back, and are tested by themselves.
STREAMS = ("/experiments/{experiment}/events/", "/answers/{answer}/stream/")

#: What our administrator, and one of both teams, asks with an object of the other team where one of ours belongs:
#: nothing of theirs is shown to who is not in that team, and nothing changes for anybody.
CROSSED = (
    *reads(
        NOBODY,
        """
        /experiments/{experiment}/memory/{their.event}/ /experiments/{experiment}/memory/{their.event}/data/
        /experiments/{experiment}/memory/?thread={their.thread} /experiments/{experiment}/memory/?run={their.run}
        /experiments/{experiment}/proposals/?plan={their.plan}
        /experiments/{experiment}/proposals/rejected/?plan={their.plan}
        /experiments/{experiment}/consultation/?where=proposals&plan={their.plan}
        /experiments/{experiment}/dialogue/{their.thread}/
        /experiments/{experiment}/dialogue/panel/?thread={their.thread}
        /experiments/{experiment}/compute/?thread={their.thread}
        /experiments/{experiment}/compute/verdict/?thread={their.thread}
        /experiments/{experiment}/dialogue/?proposal={their.proposal}
        /experiments/{experiment}/replay/{their.answer}/
        /plans/{plan}/own/?proposal={their.proposal}
        /experiments/{experiment}/timeline/?profile={their.profile}
        /api/experiments/{experiment}/timeline/?profile={their.profile}
        /compare/?a={profile}&b={their.profile} /compare/?a={their.profile}&b={profile}
        /compare/ops/?a={profile}&b={their.profile} /compare/evidence/0/?a={profile}&b={their.profile}
        /explore/?experiment={their.experiment} /experiments/?team={their.team} /history/?team={their.team}
        /knowledge/?q=notes&team={their.team} /knowledge/?q=notes&document={their.document}
        /api/compare/?a={profile}&b={their.profile}
        /api/experiments/?team={their.team} /api/history/records/?team={their.team}
        /api/history/records/export/?team={their.team} /api/history/records/{record}/similar/?team={their.team}
        /api/knowledge/search/?q=notes&team={their.team} /api/knowledge/search/?q=notes&document={their.document}
        /api/knowledge/passages/?team={their.team} /api/knowledge/passages/?document={their.document}
        /api/plans/?experiment={their.experiment} /api/profiles/?experiment={their.experiment}
        /api/runs/?experiment={their.experiment} /api/diagnoses/?experiment={their.experiment}
        /api/proposals/?experiment={their.experiment} /api/reviews/?experiment={their.experiment}
        /api/measurements/?experiment={their.experiment} /api/plan-requests/?experiment={their.experiment}
        /api/threads/?experiment={their.experiment} /api/held/?thread={their.thread}
        """,
    ),
    asks(NOBODY, "/experiments/{experiment}/proposals/again/", plan="{their.plan}"),
    asks(NOBODY, "/experiments/{experiment}/proposals/again/", plan="{plan}", exclude="{their.proposal}"),
    asks(NOBODY, "/experiments/{experiment}/dialogue/ask/", thread="{their.thread}", text="Why?"),
    asks(NOBODY, "/experiments/{experiment}/compute/verdict/", thread="{their.thread}"),
    asks(NOBODY, "/proposals/{approved}/measurement/", experiment="{their.rerun}"),
    asks(NOBODY, "/api/measurements/", proposal="{approved}", experiment="{their.rerun}"),
    asks(NOBODY, "/api/measurements/", proposal="{their.approved}", experiment="{rerun}"),
)
#: Where a team is named to write to, whoever is not in it writes nothing.
TO_THEIR_TEAM = (
    asks(NOBODY, "/api/experiments/", files=PROFILE, team="{their.team}"),
    asks(NOBODY, "/api/experiments/step-time/", config=MEASURED, team="{their.team}"),
    asks(NOBODY, "/api/knowledge/documents/", file=NOTES, team="{their.team}"),
    asks(NOBODY, "/api/history/imports/", file=RECORDS, team="{their.team}"),
    asks(NOBODY, "/settings/team/", team="{their.team}"),
)
