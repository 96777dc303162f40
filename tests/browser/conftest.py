"""A real server on a real PostgreSQL, and a browser that must not complain."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, expect
from playwright.sync_api import Error as PlaywrightError

from tests import chromium

if TYPE_CHECKING:  # models cannot be imported before pytest has configured Django
    from accounts.models import User
    from tests.browser.factories import People
    from tests.stored_rows import StoredRows

#: Served to the pages, whose browser keeps it compiled.
AXE = "axe.js"
#: Rules of axe on colours, its slowest.
COLOURS = ["color-contrast", "link-in-text-block"]
#: Rules of axe on what a narrow window hides, folds or scrolls.
HIDDEN = [
    "aria-command-name", "aria-hidden-focus", "aria-input-field-name", "aria-toggle-field-name", "button-name",
    "bypass", "empty-heading", "heading-order", "image-alt", "input-button-name", "label", "landmark-one-main",
    "link-name", "page-has-heading-one", "role-img-alt", "scrollable-region-focusable", "select-name", "summary-name",
    "svg-img-alt",
]  # fmt: skip
#: Leaves out of the rules on colours, the costliest, each text after the second one on a page, and each after those on
#: earlier pages, that is visible, of the same kind of element, and of the same colour, size, weight, surroundings, and
#: backgrounds up to the root.  Returns what this page has and earlier ones had not.
SAME_COLOURS = """known => {
  const behind = new Map([[null, ""]]), here = new Map(), earlier = new Set(known);
  const around = (it, style) => {
    if (!behind.has(it)) {
      style ||= getComputedStyle(it);
      const { backgroundColor: colour, backgroundImage: image, opacity } = style;
      const plain = colour === "rgba(0, 0, 0, 0)" && image === "none" && opacity === "1";
      behind.set(it, around(it.parentElement) + (plain ? "" : [colour, image, opacity].join() + ";"));
    }
    return behind.get(it);
  };
  const short = text => [...text].reduce((sum, part) => (Math.imul(sum, 31) + part.charCodeAt(0)) | 0, 7)
    + ":" + text.length;
  for (const it of document.body.querySelectorAll("*")) {
    if (![...it.childNodes].some(part => part.nodeType === 3 && part.data.trim()) || !it.checkVisibility()) continue;
    const style = getComputedStyle(it), parent = it.parentElement;
    const key = short([it.localName, it.className, parent.className, style.color, style.fontSize, style.fontWeight,
      style.textDecorationLine, getComputedStyle(parent).color, it.closest("[disabled], [aria-disabled=true]") !== null,
      around(it, style)].join("|"));
    here.set(key, (here.get(key) || 0) + 1);
    it.toggleAttribute("data-same-colours", here.get(key) > 2 || earlier.has(key));
  }
  axe.configure({ rules: [
    { id: "color-contrast", selector: ":not([data-same-colours])" },
    { id: "link-in-text-block", selector: "a[href]:not([data-same-colours])" },
  ] });
  return [...here.keys()].filter(key => !earlier.has(key));
}"""
#: Until then colours are on their way from one theme to the other.  What is folded away may list some that have ended,
#: or that never end: no transition of a page takes a second.
SETTLED = """async () => {
  const until = performance.now() + 3000;
  let moving;
  do {
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    moving = document.getAnimations().filter(it => it instanceof CSSTransition && it.playState !== "finished");
    const ended = Promise.allSettled(moving.map(it => it.finished));
    await Promise.race([ended, new Promise(done => setTimeout(done, 1000))]);
  } while (moving.length && performance.now() < until);
}"""
#: Themes and widths in which every page is looked at.
VIEWS: tuple[tuple[Literal["light", "dark"], int], ...] = (("light", 1280), ("dark", 1280), ("dark", 390))

#: A page may take long on a machine that tests in parallel; how long pages take is measured in bench/, not here.
expect.set_options(timeout=20_000)


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    return browser_type_launch_args | chromium.launch_arguments()


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args: dict[str, Any]) -> dict[str, Any]:
    return {**browser_context_args, "viewport": {"width": 1280, "height": 900}}


@pytest.fixture(scope="package")
def stored(owned_database: StoredRows, django_db_blocker: Any) -> Iterator[None]:
    """A database of its own, whose rows are committed for the server process to see."""
    with django_db_blocker.unblock(), owned_database.own_database("asap_browser"):
        yield


@pytest.fixture(scope="package")
def server(stored: None) -> Iterator[str]:
    """Address of the application under its ASGI server, as it is deployed."""
    from django.conf import settings
    from django.db import connection

    database = connection.settings_dict
    url = f"postgresql://{database['USER'] or 'postgres'}@{quote(database['HOST'], safe='')}/{database['NAME']}"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "DATABASE_URL": url, "ASAP_HOME": str(settings.ASAP_HOME), "ASAP_LOG_LEVEL": "WARNING"}
    settings.STATIC_ROOT.mkdir(exist_ok=True)
    (settings.STATIC_ROOT / AXE).write_text(Axe().axe_script)
    process = subprocess.Popen(
        [sys.executable, "-m", "granian", "--interface", "asginl", "--host", "127.0.0.1", "--port", str(port),
         "--no-access-log", "--log-level", "warning", "asapweb.asgi:application"],
        env=environment,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(address + "/sign-in/", process)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(150):
        assert process.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:  # refused, reset, or too slow on a busy machine
            time.sleep(0.2)
    raise AssertionError(f"the server does not answer at {address}")


@pytest.fixture(scope="session")
def base_url() -> str:
    return ""


@pytest.fixture(scope="package")
def people(server: str) -> People:
    from tests.browser.factories import make_people

    return make_people("Pages")


@pytest.fixture(scope="package")
def ready(people: People) -> Any:
    """An experiment with a diagnosis and three undecided proposals; nobody decides on these."""
    from tests.browser.factories import make_ready

    return make_ready(people, "Ready to read")


class Tab:
    """One page for many tests: opening another costs more than most of them do in it.  What a test leaves in it is
    taken away after it; if that fails, or the test did, the next one gets another."""

    def __init__(self, browser: Browser, settings: dict[str, Any], blank: str) -> None:
        self._browser, self._settings, self._blank = browser, settings, blank
        self._page: Page | None = None

    def page(self) -> Page:
        if self._page is None:
            self._page = self._browser.new_context(**self._settings).new_page()
        return self._page

    def clean(self) -> None:
        page = self.page()
        page.unroute_all(behavior="ignoreErrors")
        page.goto(self._blank)  # of the server, whose storage can only be emptied there, and without a script
        page.evaluate("localStorage.clear(); sessionStorage.clear()")
        page.context.clear_cookies()
        page.set_viewport_size(self._settings["viewport"])
        page.emulate_media(color_scheme="null")
        page.mouse.move(0, 0)
        assert page.context.pages == [page]

    def close(self) -> None:
        if self._page is not None:
            self._page.context.close()
            self._page = None


@pytest.fixture(scope="package")
def tab(server: str, browser: Browser, browser_context_args: dict[str, Any]) -> Iterator[Tab]:
    made = Tab(browser, browser_context_args, server + "/static/icon.svg")
    loop = asyncio._get_running_loop()
    yield made
    asyncio._set_running_loop(loop)  # closing it needs Playwright's, whichever test is the last
    made.close()


@pytest.fixture
def page(request: pytest.FixtureRequest, tab: Tab) -> Iterator[Page]:
    yield tab.page()
    said = getattr(request.node, "rep_call", None)  # set by pytest-playwright
    try:
        assert said is not None and said.passed
        tab.clean()
    except (AssertionError, PlaywrightError):
        tab.close()


@pytest.fixture
def context(page: Page) -> BrowserContext:
    return page.context


@pytest.fixture(autouse=True)
def complaints(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """What the browser's console says; a test ends without an error in it.  Tests that open no page need no browser."""
    said: list[str] = []
    if "page" not in request.fixturenames:
        yield said
        return
    page: Page = request.getfixturevalue("page")

    def listen(message: ConsoleMessage) -> None:
        expected = "the server responded with a status of 4" in message.text  # refused on purpose, and shown
        # A request that a newer one replaced, which htmx tells as an error.
        expected |= message.text.startswith(("htmx:afterRequest", "htmx:sendAbort"))
        if message.type == "error" and not expected:
            said.append(message.text)

    def fail(error: PlaywrightError) -> None:
        said.append(str(error))

    def refuse(dialog: Dialog) -> None:
        said.append(f"a script of the profile ran: {dialog.message}")
        dialog.dismiss()

    page.on("console", listen)
    page.on("pageerror", fail)
    page.on("dialog", refuse)
    yield said
    page.remove_listener("console", listen)
    page.remove_listener("pageerror", fail)
    page.remove_listener("dialog", refuse)
    assert said == []


@pytest.fixture
def sign_in(server: str, context: BrowserContext) -> Callable[[User], None]:
    """Sign the browser in, as a one-time link would."""
    from django.conf import settings
    from django.test import Client

    def as_user(user: User) -> None:
        client = Client()
        client.force_login(user)
        cookie = client.cookies[settings.SESSION_COOKIE_NAME]
        context.clear_cookies()
        context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": server}])

    return as_user


@pytest.fixture
def as_reviewer(people: People, sign_in: Callable[[User], None]) -> People:
    sign_in(people.reviewer)
    return people


@pytest.fixture
def as_engineer(people: People, sign_in: Callable[[User], None]) -> People:
    sign_in(people.engineer)
    return people


def check_readable(page: Page, address: str, words: str = "", look: Callable[[str, int], None] | None = None) -> None:
    """The page holds the words; in each of VIEWS axe finds nothing wrong, and it is no wider than its window.  Theme
    and width change in the open page; one of which scripts fold parts in a narrow window is loaded anew."""
    for theme, width in VIEWS:
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 900})
        if (theme, width) == VIEWS[0] or (width < 1280 and page.locator("[data-fold]").count()):
            answer = page.goto(address)
            assert answer is not None and answer.status == 200
            expect(page.locator("main")).to_contain_text(words)
        page.evaluate(SETTLED)
        if look:
            look(theme, width)
        assert violations(page, theme, width) == [], (theme, width)
        assert overflow(page) <= 0, (theme, width)


#: Colours that texts on earlier pages had, each of which axe has looked at.
looked_at: set[str] = set()


def violations(page: Page, theme: str = "light", width: int = 1280) -> list[str]:
    """What axe finds wrong, as rule and element; in a narrow window only names and what scrolls, else in the dark theme
    only the colours, since nothing else can differ.  Of texts that look alike on the same background, as the rows of a
    table or the head of every page do, the colours of two are looked at."""
    if not page.evaluate("window.axe !== undefined"):
        page.add_script_tag(url=f"/static/{AXE}")
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if width < 1280:
        options["runOnly"] = HIDDEN
    else:
        if theme == "dark":
            options["runOnly"] = COLOURS
        new = page.evaluate(SAME_COLOURS, list(looked_at))
        looked_at.update(new)
        if theme == "dark" and not new:
            return []
    wrong = page.evaluate("options => axe.run(options).then(result => result.violations)", options)
    return [f"{item['id']}: {node['target']}" for item in wrong for node in item["nodes"]]


def overflow(page: Page) -> int:
    """Pixels by which the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
