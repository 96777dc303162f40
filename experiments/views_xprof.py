"""XProf's own pages behind our permissions, and the log directory to take away.

The pages run scripts that we did not write, over names that a profile's author chose.  So they live in a sandboxed
frame without an origin: no cookie of ours is sent with their requests, and they may ask nothing but their own address,
which holds a token.  Every request is checked against the token's session and the user's membership.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode

import httpx
from asgiref.sync import sync_to_async
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from accounts.models import Role
from accounts.permissions import MemberRequest, require
from experiments.live import one_by_one
from experiments.pages import experiment_page
from experiments.services import log_directory, viewers
from experiments.viewer import ViewerError

PREFIX = "data/plugin/profile/"
#: What XProf's pages ask for; not what captures a profile, fills its cache, or reads another folder.
ROUTES = frozenset(
    ("", "data", "data_csv", "version", "runs", "run_tools", "hosts", "module_list", "config",
     "index.html", "index.js", "bundle.js", "styles.css", "runtime.js", "zone.js", "materialicons.woff2",
     "material_symbols_outlined.woff2", "trace_viewer_index.html", "trace_viewer_index.js", "trace_viewer_v2.js",
     "trace_viewer_v2.wasm")
)  # fmt: skip
_STATIC = re.compile(r"\.(js|css|woff2|wasm)$")
#: A tool's page, as the browser asks for it when a frame is loaded again: XProf answers with its start page.
_PAGE = re.compile(r"^[a-z_@]{1,60}(/[\w.@-]{0,120}){0,2}$")
_PASSED = ("content-type", "content-encoding", "content-length", "content-disposition")
#: XProf reads any folder that these name.
_FOLDERS = frozenset(("session_path", "run_path"))
_SESSION_TOKEN = "xprof-{}"
TIMEOUT_S = 240.0


@require(Role.VIEWER, "GET", "POST")
def xprof(request: MemberRequest, pk: int) -> HttpResponse:
    """The page around XProf's own; a POST starts it."""
    page = experiment_page(request, pk)
    profile = page.run.profile if page.run is not None else None
    offered = profile is not None and viewers.can_open(profile)
    if request.method == "POST":
        if profile is not None and offered:
            _open(request, profile.pk, pk)
        return redirect("xprof", pk)
    token = request.session.get(_SESSION_TOKEN.format(profile.pk)) if profile is not None else None
    running = bool(token and offered and profile and viewers.allowed(token, pk) and viewers.socket_of(profile.pk))
    frame = reverse("xprof_pages", args=[pk, token, PREFIX]) if running else ""
    context = page.context("timeline", offered=offered, pages_url=frame, minutes=10)
    return render(request, "experiments/xprof.html", context)


def _open(request: MemberRequest, profile_pk: int, pk: int) -> None:
    page = experiment_page(request, pk)
    if request.session.session_key is None:
        request.session.save()
    assert page.run is not None
    try:
        token = viewers.open_for(page.run.profile, request.user, str(request.session.session_key))
        request.session[_SESSION_TOKEN.format(profile_pk)] = token
    except ViewerError as error:
        messages.error(request, str(error))


@require(Role.VIEWER, "POST")
def stop(request: MemberRequest, pk: int) -> HttpResponse:
    """End XProf for this profile."""
    page = experiment_page(request, pk)
    if page.run is not None:
        viewers.stop(page.run.profile_id)
        request.session.pop(_SESSION_TOKEN.format(page.run.profile_id), None)
    return redirect("timeline", pk)


@require_GET
async def pages(request: HttpRequest, pk: int, token: str, path: str) -> HttpResponseBase:
    """What XProf's server answers, streamed; 404 for whom the link is not."""
    socket = await sync_to_async(_socket)(token, pk)
    if socket is None or not path.startswith(PREFIX):
        raise Http404
    route = path.removeprefix(PREFIX).rstrip("/")
    query = [(key, value) for key, values in request.GET.lists() for value in values]
    if not _may(route, query):
        raise Http404
    target = f"http://xprof/{PREFIX}{route}?{urlencode(query)}"
    client = httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(socket)), timeout=TIMEOUT_S)
    try:
        answer = await client.send(
            client.build_request("GET", target, headers={"Accept-Encoding": "gzip"}), stream=True
        )
    except httpx.HTTPError:
        await client.aclose()
        return _framed(
            HttpResponse("XProf has stopped. Open it again.\n", status=502, content_type="text/plain"), request
        )
    if answer.headers.get("content-type", "").startswith("text/html"):
        return _framed(await _with_storage(client, answer), request)
    response = StreamingHttpResponse(_stream(client, answer), status=answer.status_code)
    for name in _PASSED:
        if name in answer.headers:
            response[name] = answer.headers[name]
    response["Cache-Control"] = "private, max-age=3600" if _STATIC.search(route) else "no-store"
    return _framed(response, request)


def _socket(token: str, pk: int) -> Path | None:
    link = viewers.allowed(token, pk)
    return viewers.socket_of(link.profile_id) if link is not None else None


def _may(route: str, query: list[tuple[str, str]]) -> bool:
    if route not in ROUTES and not _PAGE.match(route):
        return False
    if route.split("/")[0] in ("capture_profile", "generate_cache", "local"):
        return False
    if _STATIC.search(route) or route.endswith(".html"):
        return True  # the rest of the URL is for the page's own script
    return not any(
        key in _FOLDERS or ".." in value or "://" in value or value.startswith(("/", "~")) for key, value in query
    )


#: A frame without an origin has no storage, which XProf's pages use as if it were there: it lasts as long as the page.
_STORAGE = b"""<script>
for (const name of ["sessionStorage", "localStorage"]) {
  try { window[name]; } catch (error) {
    const kept = new Map();
    Object.defineProperty(window, name, { value: {
      get length() { return kept.size; }, key: at => [...kept.keys()][at] ?? null, clear: () => kept.clear(),
      getItem: key => kept.has(String(key)) ? kept.get(String(key)) : null,
      setItem: (key, value) => { kept.set(String(key), String(value)); },
      removeItem: key => { kept.delete(String(key)); }
    } });
  }
}
</script>"""


async def _with_storage(client: httpx.AsyncClient, answer: httpx.Response) -> HttpResponse:
    try:
        page = await answer.aread()
    finally:
        await client.aclose()
    head, tag, rest = page.partition(b"<head>")
    body = head + tag + _STORAGE + rest if tag else page
    response = HttpResponse(body, status=answer.status_code, content_type=answer.headers["content-type"])
    response["Cache-Control"] = "no-store"
    return response


async def _stream(client: httpx.AsyncClient, answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    finally:
        await answer.aclose()
        await client.aclose()


def _framed(response: HttpResponseBase, request: HttpRequest) -> HttpResponseBase:
    """The headers that keep the pages to themselves."""
    own = request.build_absolute_uri(request.path.partition(PREFIX)[0])
    # XProf puts its trace viewer into a frame of its own, whose parent has no origin that a policy could name.
    is_inner = request.path.endswith(f"/{PREFIX}trace_viewer_index.html")
    response["Content-Security-Policy"] = "; ".join(
        (
            "sandbox allow-scripts allow-downloads",
            "default-src 'none'",
            f"script-src {own} 'unsafe-inline' 'unsafe-eval' blob:",
            f"style-src {own} 'unsafe-inline'",
            f"font-src {own} data:",
            f"img-src {own} data: blob:",
            f"connect-src {own} data: blob:",
            f"worker-src {own} blob:",
            f"frame-src {own} blob:",
            f"base-uri {own}",
            "form-action 'none'",
            *(() if is_inner else ("frame-ancestors 'self'",)),
        )
    )
    if is_inner:
        response.xframe_options_exempt = True  # type: ignore[attr-defined]
    else:
        response["X-Frame-Options"] = "SAMEORIGIN"
    response["Access-Control-Allow-Origin"] = "null"  # the frame has no origin; what opens it is the token
    response["Referrer-Policy"] = "no-referrer"
    response["X-Content-Type-Options"] = "nosniff"
    response["Cross-Origin-Resource-Policy"] = "cross-origin"
    return response


@require(Role.VIEWER, "GET")
def log_archive(request: MemberRequest, pk: int) -> StreamingHttpResponse:
    """The files as XProf and TensorBoard want them: a zip with `plugins/profile/<session>/HOST.xplane.pb`."""
    page = experiment_page(request, pk)
    if page.run is None or not viewers.can_open(page.run.profile):
        raise Http404("This experiment has no files that XProf can read.")
    profile = page.run.profile
    pieces = one_by_one(log_directory.pieces(profile, list(profile.files.filter(included=True))))
    response = StreamingHttpResponse(pieces, content_type="application/zip")
    response["Content-Disposition"] = f'attachment; filename="experiment-{pk}-profile.zip"'
    return response
