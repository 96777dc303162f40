"""An answer's Markdown as HTML: nothing but text, tables, lists, code and links, and behind each sentence its sources.

Raw HTML stays text, images are not loaded, and links lead to http(s) or within the site.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import urlsplit

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

#: Brackets that no text of ours uses; punctuation to Markdown, so that what stands before them reads as without them.
_OPEN, _CLOSE = "\u2045", "\u2046"
_MARK = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")


@dataclass(frozen=True)
class Source:
    """A tool result behind a sentence.  number: of the step, from 1; anchor: of its element; tool: its name."""

    number: int
    anchor: str
    tool: str


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        """Whether a link may lead there."""
        try:
            parts = urlsplit(url.strip())
        except ValueError:
            return False
        if parts.scheme or parts.netloc:
            return parts.scheme in ("http", "https") and bool(parts.netloc)
        return bool(url)


_MARKDOWN = _Markdown("commonmark", {"html": False}).enable("table").disable("image")
_MARKDOWN.add_render_rule(
    "table_open",
    lambda *_: '<div class="tablewrap" tabindex="0" role="region" aria-label="Table"><table class="mini">\n',
)
_MARKDOWN.add_render_rule("table_close", lambda *_: "</table></div>\n")


def as_html(
    text: str, supports: Sequence[Mapping[str, object]] = (), sources: Mapping[str, Source] | None = None
) -> SafeString:
    """supports: `proposals.agents.grounding.Link` as JSON; sources: of the answer's results, by their id."""
    known = sources or {}
    text = text.replace(_OPEN, "[").replace(_CLOSE, "]")
    notes: list[list[Source]] = []
    for link in sorted(supports, key=_end, reverse=True):
        results = [known[key] for key in _results(link) if key in known]
        place = _place(text, _end(link))
        if results and place:
            text = f"{text[:place]}{_OPEN}{len(notes)}{_CLOSE}{text[place:]}"
            notes.append(results)
    tokens = _MARKDOWN.parse(text)
    _tame(tokens)
    _name_columns(tokens)
    html = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})
    return mark_safe(_MARK.sub(lambda match: _note(notes, int(match[1])), html))  # the parser escapes raw HTML


def _end(link: Mapping[str, object]) -> int:
    end = link.get("end")
    return end if isinstance(end, int) else 0


def _results(link: Mapping[str, object]) -> list[str]:
    keys = link.get("results")
    return [str(item) for item in keys] if isinstance(keys, list | tuple) else []


def _place(text: str, end: int) -> int:
    """Where a sentence's note stands: behind its last sign, in a table within its last cell."""
    end = min(max(end, 0), len(text))
    kept = text[:end].rstrip()
    line = kept[kept.rfind("\n") + 1 :]
    if line.lstrip().startswith("|") and kept.endswith("|"):
        kept = kept[:-1].rstrip()
    return len(kept)


def _note(notes: Sequence[Sequence[Source]], index: int) -> str:
    if index >= len(notes):
        return ""
    links = format_html_join(
        "", '<a href="#{}" data-step title="From step {}, {}"><span class="sr">source: step </span>{}</a>',
        ((item.anchor, item.number, item.tool, item.number) for item in notes[index]),
    )  # fmt: skip
    return format_html('<sup class="srcs">{}</sup>', links)


def _name_columns(tokens: Sequence[Token]) -> None:
    """Each cell of a table names its column, for where a row is shown as a block."""
    heads: list[str] = []
    column = 0
    for token, inside in pairwise(tokens):
        if token.type == "thead_open":
            heads = []
        elif token.type == "tr_open":
            column = 0
        elif token.type == "th_open":
            heads.append(_MARK.sub("", "".join(child.content for child in inside.children or ())))
        elif token.type == "td_open":
            token.attrs["data-column"] = heads[column]
            column += 1


def _tame(tokens: Sequence[Token]) -> None:
    """Classes for styles, which the content policy refuses; no headings, the page has its own; links tell nobody."""
    for token in tokens:
        style = str(token.attrs.pop("style", ""))
        if "right" in style:
            token.attrs["class"] = "n"
        if token.type in ("heading_open", "heading_close"):
            token.tag = "p"
            if token.nesting == 1:
                token.attrs["class"] = "strong"
        if token.type == "link_open" and "://" in str(token.attrs.get("href", "")):
            token.attrs |= {"rel": "noopener noreferrer", "target": "_blank"}
        if token.type in ("fence", "code_block"):
            token.attrs["tabindex"] = "0"
        if token.children:
            _tame(token.children)
