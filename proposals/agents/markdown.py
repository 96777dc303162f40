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
_MARK = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")


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
    _name_columns(tokens, values)
    _put(tokens, values, link)
    return str(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))


def of_value(value: Value, link: Link = no_link) -> str:
    """Return the HTML of one value."""
    if isinstance(value.value, str) and not value.href:
        return escape(value.text)
    facts = {
        "of": value.subject, "origin": value.origin, "formula": value.formula, "interval": value.interval,
        "target": value.href,
    }  # fmt: skip
    data = "".join(f' data-{key}="{escape(text)}"' for key, text in facts.items() if text)
    classes = "" if isinstance(value.value, str) else f'class="nb{" p" if value.origin == "predicted" else ""}"'
    address = link(value.href) if value.href else ""
    start = f'<a {classes} href="{escape(address)}"' if address else f'<span {classes} tabindex="0"'
    shown = escape(value.text if isinstance(value.value, str) else value.number)
    after = f' <span class="iv">({escape(value.interval)})</span>' if value.in_text and value.interval else ""
    return f"{start}{data}>{shown}</{'a' if address else 'span'}>{after}"


def _put(tokens: Sequence[Token], values: Sequence[Value], link: Link) -> None:
    """Put the values into texts as HTML, into code and attributes as plain text."""
    for token in tokens:
        for key, attribute in token.attrs.items():
            token.attrs[key] = _plain(str(attribute), values)
        if token.children:
            inside: list[Token] = []
            in_link = 0
            for child in token.children:
                in_link += child.nesting if child.type in ("link_open", "link_close") else 0
                if child.type == "text" and _MARK.search(child.content):
                    inside += _split(child, values, no_link if in_link else link)
                else:
                    inside.append(child)
            token.children = inside
            _put([child for child in inside if child.type not in ("text", "html_inline")], values, link)
        elif token.type != "html_inline":
            token.content = _plain(token.content, values)


def _split(token: Token, values: Sequence[Value], link: Link) -> list[Token]:
    pieces = _MARK.split(token.content)
    made = []
    for place, piece in enumerate(pieces):
        if place % 2:
            content = of_value(values[int(piece)], link) if int(piece) < len(values) else ""
            made.append(Token("html_inline", "", 0, content=content))
        elif piece:
            made.append(Token("text", "", 0, content=piece))
    return made


def _plain(text: str, values: Sequence[Value]) -> str:
    return _MARK.sub(lambda match: values[int(match[1])].text if int(match[1]) < len(values) else "", text)


def _name_columns(tokens: Sequence[Token], values: Sequence[Value]) -> None:
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
            heads.append(_plain("".join(child.content for child in inside.children or ()), values))
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
