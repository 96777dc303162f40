"""Markdown as HTML: nothing but text, tables, lists, code and links, with the values of a text in it.

Raw HTML stays text, images are not loaded, and links lead to http(s) or within the site.  Values are put in after the
Markdown has been read, so that nothing which a profile or a document says can become markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import pairwise
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

from proposals.agents.values import Value

#: The address of what a `Value.href` names; empty where there is none.
Link = Callable[[str], str]
#: Brackets that no text of ours uses; punctuation to Markdown, so that what stands before them reads as without them.
_OPEN, _CLOSE = "\u2045", "\u2046"
_MARK = re.compile(f"{_OPEN}([0-9]{{1,4}}){_CLOSE}")
_TAG = re.compile(r"(<[^>]*>)")


def no_link(_: str) -> str:
    """Return no address."""
    return ""


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        """Return True if a link may lead there."""
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


def to_html(parts: Iterable[str | Value], link: Link = no_link) -> str:
    """Return the HTML of a text; every value in it is a link, or can be focused, and carries its subject and origin."""
    values: list[Value] = []
    text = ""
    for part in parts:
        if isinstance(part, Value):
            text += f"{_OPEN}{len(values)}{_CLOSE}"
            values.append(part)
        else:
            text += part.replace(_OPEN, "[").replace(_CLOSE, "]")
    tokens = _MARKDOWN.parse(text)
    _tame(tokens)
    _name_columns(tokens)
    return _put(str(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})), values, link)


def of_value(value: Value, link: Link = no_link) -> str:
    """Return the HTML of one value."""
    if isinstance(value.value, str) and not (value.href or value.subject):
        return escape(value.text)
    facts = {
        "of": value.subject, "origin": value.origin, "formula": value.formula, "interval": value.interval,
        "target": value.href,
    }  # fmt: skip
    data = "".join(f' data-{key}="{escape(text)}"' for key, text in facts.items() if text)
    is_predicted = value.origin == "predicted" and not isinstance(value.value, str)
    classes = f'class="nb{" p" if is_predicted else ""}"'
    address = link(value.href) if value.href else ""
    start = f'<a {classes} href="{escape(address)}"' if address else f'<span {classes} tabindex="0"'
    shown = escape(value.text if isinstance(value.value, str) else value.number)
    after = f' <span class="iv">({escape(value.beside)})</span>' if value.beside else ""
    return f"{start}{data}>{shown}</{'a' if address else 'span'}>{after}"


def _put(html: str, values: Sequence[Value], link: Link) -> str:
    """Put the values into texts as HTML, into links and code without a link of their own, into attributes as text."""
    pieces, in_link, in_code = _TAG.split(html), 0, 0

    def put(match: re.Match[str]) -> str:
        if int(match[1]) >= len(values):  # brackets can be written as entities
            return ""
        value = values[int(match[1])]
        return escape(value.text) if place % 2 else of_value(value, no_link if in_link or in_code else link)

    for place, piece in enumerate(pieces):
        pieces[place] = _MARK.sub(put, piece)
        in_link += piece.startswith("<a ") - piece.startswith("</a>")
        in_code += piece.startswith("<code") - piece.startswith("</code")
    return "".join(pieces)


def _name_columns(tokens: Sequence[Token]) -> None:
    """Each cell of a table names its column, for where a row is shown as a block; a column without a name has no
    header."""
    heads: list[str] = []
    closing: Token | None = None
    column = 0
    for token, inside in pairwise(tokens):
        if token.type == "thead_open":
            heads = []
        elif token.type == "tr_open":
            column = 0
        elif token.type == "th_open":
            heads.append("".join(child.content for child in inside.children or ()))
            if not heads[-1]:
                token.tag, closing = "td", token
        elif token.type == "th_close" and closing is not None:
            token.tag, closing = "td", None
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
