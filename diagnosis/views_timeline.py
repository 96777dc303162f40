"""Pages of the timeline: the page itself, its tiles, sums of a selection, one event, and the trace to take away."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Any

from django.http import Http404, HttpResponse, HttpResponseNotModified, JsonResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse

from accounts.models import Role
from accounts.permissions import MemberRequest, require
from diagnosis import timelines
from diagnosis.timelines import PS, Timeline
from experiments.live import one_by_one
from experiments.models import Profile
from experiments.pages import ExperimentPage, experiment_page
from experiments.services import traces
from experiments.trace import OPS, Trace, perfetto, sums
from formatting.numbers import whole_number

#: Of a highlighted or searched op, so many spans can be stepped through.
MOST_SPANS = 2000


def load(page: ExperimentPage, request: MemberRequest) -> Timeline:
    """The timeline of the newest run's profile, or of the one that the address names.  Raises `traces.NoTrace`."""
    profile = page.run.profile if page.run is not None else None
    if (number := whole_number(request.GET.get("profile", ""))) is not None:
        profile = get_object_or_404(page.experiment.profiles, pk=number)
    if profile is None:
        raise traces.NoTrace("Nothing has been uploaded yet.")
    return timelines.of_profile(profile, page.experiment)


def timeline_of(request: MemberRequest, pk: int) -> Timeline:
    """The same for the parts of the page, which are not there without events."""
    return load(experiment_page(request, pk), request)


@require(Role.VIEWER, "GET")
def timeline(request: MemberRequest, pk: int) -> HttpResponse:
    """The timeline of a profile: one step of every core, or what the address names."""
    page = experiment_page(request, pk)
    try:
        shown = load(page, request)
    except traces.NoTrace as error:
        context = page.context("timeline", reason=str(error))
        return render(request, "diagnosis/timeline.html", context)
    view = timelines.view_of(shown, request.GET)
    context = page.context("timeline", **panel(shown, view, request.GET, pk), **sums_context(shown, view, request.GET))
    return render(request, "diagnosis/timeline.html", context)


def panel(shown: Timeline, view: dict[str, Any], query: Mapping[str, str], pk: int) -> dict[str, Any]:
    """What the canvas and the controls around it need."""
    rows, lanes = shown.rows(), shown.lanes()
    ops = [row for row in rows if row["lane"] == OPS]
    spans = shown.step_spans()
    on = [OPS] if len(ops) > timelines.MOST_ROWS_WITH_ASYNC else [lane for lane in lanes if lane != "host"]
    data = {
        "version": shown.version,
        "tiles": reverse("timeline_tile", args=[pk, shown.version, 0, 0]).replace("/0/0/", "/{level}/{index}/"),
        "sums": reverse("timeline_sums", args=[pk]),
        "event": reverse("timeline_event", args=[pk]),
        "spans": reverse("timeline_spans", args=[pk]),
        "rows": rows,
        "lanes": on or lanes,
        "classes": [{"label": each.label, "css": each.css} for each in shown.classes],
        "span": list(shown.trace.span),
        "steps": [list(each) for each in spans[: timelines.MOST_STEPS_LISTED]],
        "home": list(view["home"]),
        "view": [view["t0"], view["t1"]],
        "selected": view["is_selected"],
        "op": query.get("op", "")[:800],
        "q": query.get("q", "")[:200],
        "profile": shown.profile.pk,
    }
    return {
        "shown": shown,
        "data": data,
        "view": view,
        "lanes": [(lane, _LANE_WORDS[lane], lane in data["lanes"]) for lane in lanes],
        "steps": [number for number, _, _ in spans[: timelines.MOST_STEPS_LISTED]],
        "step_count": len(spans),
        "op": data["op"],
        "q": data["q"],
        "core_count": len({row["core"] for row in ops}),
        "trace_notes": shown.trace.notes,
    }


_LANE_WORDS = {"ops": "Ops", "async": "Async in flight", "host": "Host threads"}


def side(profile: Profile) -> dict[str, Any]:
    """One side of a comparison: the panel of its usual step and its sums, or the reason why there is none."""
    try:
        shown = timelines.of_profile(profile, profile.experiment)
    except traces.NoTrace as error:
        return {"reason": str(error)}
    view = timelines.view_of(shown, {})
    pk = profile.experiment_id
    return {"experiment": profile.experiment, **panel(shown, view, {}, pk), **sums_context(shown, view, {})}


@require(Role.VIEWER, "GET")
def tile(request: MemberRequest, pk: int, version: str, level: int, index: int) -> HttpResponse:
    """One tile as bytes (`experiments.trace.tiles.pack`); kept by the browser, since its version is in the address."""
    shown = timeline_of(request, pk)
    is_current = version == shown.version
    tag = f'"{shown.version}-{request.GET.urlencode()}-{level}-{index}"'
    if request.headers.get("If-None-Match") == tag and is_current:
        return HttpResponseNotModified()
    block = whole_number(request.GET.get("block", "0"))
    lane, words = request.GET.get("lane", OPS), request.GET.get("q", "")[:200]
    op = request.GET.get("op", "")[:800]
    try:
        data = timelines.tile(shown, lane, -1 if block is None else block, level, index, op, words)
    except ValueError as error:
        raise Http404(str(error)) from error
    packed = "gzip" in request.headers.get("Accept-Encoding", "") and len(data) > 1000
    response = HttpResponse(gzip.compress(data, 1) if packed else data, content_type="application/octet-stream")
    if packed:
        response["Content-Encoding"] = "gzip"
    response["Vary"] = "Accept-Encoding, Cookie"
    response["Cache-Control"] = "private, max-age=86400, immutable" if is_current else "no-store"
    if is_current:
        response["ETag"] = tag
    return response


@require(Role.VIEWER, "GET")
def sums_part(request: MemberRequest, pk: int) -> HttpResponse:
    """Sums, longest spans and gaps of what is selected, or in view."""
    page = experiment_page(request, pk)
    shown = load(page, request)
    view = timelines.view_of(shown, request.GET)
    view["is_selected"] = request.GET.get("selected") == "1"
    context = page.context("timeline", **sums_context(shown, view, request.GET))
    part = "_timeline_brief" if request.GET.get("brief") else "_timeline_sums"
    return render(request, f"diagnosis/{part}.html", context)


def sums_context(shown: Timeline, view: dict[str, Any], query: Mapping[str, str]) -> dict[str, Any]:
    """The tables: each row of ops, spans and gaps with its words, its link, and its place for the canvas."""
    result = shown.sums(view["t0"], view["t1"])
    trace, cores = shown.trace, len(result.cores) or 1
    whole = result.window_ps * cores or 1
    busy = sum(core.busy_ps for core in result.cores)
    names = trace.names
    name_ids = shown.found_names(query.get("op", ""), query.get("q", ""))
    classes = [
        {"label": each.label, "css": each.css, "time_s": time / PS / cores, "share": time / whole}
        for each, time in zip(shown.classes, result.by_class, strict=True)
        if time
    ]
    used = [at for at, time in enumerate(result.by_class) if time]
    return {
        "window": {"t0_s": view["t0"] / PS, "t1_s": view["t1"] / PS, "length_s": result.window_ps / PS,
                   "is_selected": view["is_selected"],
                   "step": view["step"], "is_home": (view["t0"], view["t1"]) == view["home"]},
        "result": result,
        "sum_classes": classes,
        "idle": {"time_s": (whole - busy) / PS / cores, "share": (whole - busy) / whole},
        "busy": {"time_s": busy / PS / cores, "share": busy / whole},
        "overlaps": sum(result.by_class) > busy * 1.000001,
        "sum_ops": [
            {"name": names[name].text, "css": shown.css(name), "label": shown.class_label(name), "count": count,
             "time_s": time / PS / cores, "share": time / whole, "rank": shown.rank(name), "op": names[name].op}
            for name, time, count in result.by_name
        ],
        "core_columns": [shown.classes[at] for at in used],
        "core_rows": [
            {"name": trace.cores[core.core].name, "host": trace.cores[core.core].host, "busy_s": core.busy_ps / PS,
             "gap_s": (result.window_ps - core.busy_ps) / PS, "parts": [core.by_class[at] / PS for at in used]}
            for core in result.cores
        ],
        "gaps": [
            {"core": trace.cores[gap.core].name, "start_s": gap.start / PS, "end_s": (gap.start + gap.duration) / PS,
             "time_s": gap.duration / PS, "after": names[gap.after].text if gap.after is not None else "",
             "before": names[gap.before].text if gap.before is not None else ""}
            for gap in result.gaps
        ],
        "longest": [span_row(shown, span) for span in result.longest],
        "matches": _matches(shown, name_ids, view) if name_ids else [],
        "match_count": len(name_ids),
        "wanted": query.get("op", "") or query.get("q", ""),
    }  # fmt: skip


def span_row(shown: Timeline, span: sums.Span) -> dict[str, Any]:
    """One event in words."""
    track, name = shown.trace.tracks[span.track], shown.trace.names[span.name]
    core = shown.trace.cores[track.core]
    return {
        "track": span.track, "number": span.number, "name": name.text, "kind": name.kind, "op": name.op,
        "css": shown.css(span.name), "label": shown.class_label(span.name), "rank": shown.rank(span.name),
        "core": core.name, "host": core.host, "lane": track.lane, "stream": track.name,
        "start_s": span.start / PS, "end_s": (span.start + span.duration) / PS, "time_s": span.duration / PS,
        "t0": span.start, "t1": span.start + span.duration,
    }  # fmt: skip


def _matches(shown: Timeline, names: list[int], view: dict[str, Any]) -> list[dict[str, Any]]:
    """What was searched for, in view: each name with its sums and its first span."""
    spans = sums.spans_of(shown.trace, names, view["t0"], view["t1"], most=20_000)
    by_name: dict[int, list[sums.Span]] = {}
    for span in spans:
        by_name.setdefault(span.name, []).append(span)
    rows = [
        {**span_row(shown, of_name[0]), "count": len(of_name), "sum_s": sum(each.duration for each in of_name) / PS}
        for of_name in by_name.values()
    ]
    return sorted(rows, key=lambda row: -row["sum_s"])[:50]


@require(Role.VIEWER, "GET")
def spans(request: MemberRequest, pk: int) -> HttpResponse:
    """Where the events of an op, or those that hold some words, are: [track, start, duration] in ps, in order."""
    shown = timeline_of(request, pk)
    view = timelines.view_of(shown, request.GET)
    names = shown.found_names(request.GET.get("op", ""), request.GET.get("q", ""))
    rows = sums.spans_of(shown.trace, names, view["t0"], view["t1"], most=MOST_SPANS)
    return JsonResponse({"names": len(names), "spans": [[row.track, row.start, row.duration] for row in rows]})


@require(Role.VIEWER, "GET")
def event(request: MemberRequest, pk: int) -> HttpResponse:
    """One event: that of a track at a moment (`t`, s), or by its number."""
    page = experiment_page(request, pk)
    shown = load(page, request)
    span = _event_of(shown.trace, request)
    context = page.context("timeline", shown=shown, event=span_row(shown, span) if span else None)
    if span is not None:
        context["alike"] = _duration_statistics(shown, span)
    return render(request, "diagnosis/_timeline_event.html", context)


def _event_of(trace: Trace, request: MemberRequest) -> sums.Span | None:
    at, number = (whole_number(request.GET.get(name, "")) for name in ("track", "number"))
    if at is None or at >= len(trace.tracks):
        raise Http404("There is no such track.")
    if number is not None:
        place = min(number, trace.tracks[at].count - 1)
        return sums.Span(
            at, place, int(trace.starts(at)[place]), int(trace.durations(at)[place]), int(trace.name_ids(at)[place])
        )
    slack = timelines.seconds_to_ps(request.GET.get("slack"), 0)
    return sums.at(trace, at, timelines.seconds_to_ps(request.GET.get("t"), 0), min(max(slack, 0), 10**15))


def _duration_statistics(shown: Timeline, span: sums.Span) -> dict[str, Any]:
    """How this event stands among those of its name on its track."""
    trace = shown.trace
    mine = trace.durations(span.track)[trace.name_ids(span.track) == span.name]
    return {"count": len(mine), "mean_s": float(mine.mean()) / PS, "least_s": float(mine.min()) / PS,
            "most_s": float(mine.max()) / PS, "last": trace.tracks[span.track].count - 1}  # fmt: skip


@require(Role.VIEWER, "GET")
def export(request: MemberRequest, pk: int) -> HttpResponse | StreamingHttpResponse:
    """The events as Trace Event JSON, which Perfetto opens."""
    shown = timeline_of(request, pk)
    pieces = perfetto.gzipped(perfetto.events(shown.trace))
    response = StreamingHttpResponse(one_by_one(pieces), content_type="application/gzip")
    response["Content-Disposition"] = f'attachment; filename="experiment-{pk}.trace.json.gz"'
    return response
