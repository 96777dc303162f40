"""Small parts of the knowledge base's pages: a passage's text as HTML, where it stands, and why it was found."""

from __future__ import annotations

from collections.abc import Sequence

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from knowledge.models import Document, Kind, Passage, State
from knowledge.services.browse import BOTTLENECK_WORDS

register = template.Library()

#: Raw HTML stays text and nothing is loaded from elsewhere; links are checked by markdown-it.
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
_MARKDOWN.add_render_rule(
    "table_open", lambda *_: '<div class="tablewrap" tabindex="0" role="region" aria-label="Table"><table>\n'
)
_MARKDOWN.add_render_rule("table_close", lambda *_: "</table></div>\n")
#: A badge's kind for the state of a document.
_STATES = {State.READING: ("Being read", "running"), State.FAILED: ("Not readable", "failed")}


@register.filter
def passage_html(passage: Passage) -> SafeString:
    """Its text as it was meant: Markdown rendered, lines of a text file kept, paragraphs of a PDF."""
    kind = passage.document.kind
    if kind in (Kind.SHIPPED, Kind.MARKDOWN):
        return _markdown(passage.text)
    if kind == Kind.TEXT:
        return format_html('<div class="prewrap">{}</div>', passage.text)
    return format_html_join("", "<p>{}</p>", ((part,) for part in passage.text.split("\n\n")))


@register.filter
def markdown_line(text: str) -> SafeString:
    """One line with `code` and *emphasis*."""
    return mark_safe(_MARKDOWN.renderInline(text))  # raw HTML is escaped by the parser


def _markdown(text: str) -> SafeString:
    tokens = _MARKDOWN.parse(text)
    _tame(tokens)
    return mark_safe(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))  # raw HTML is escaped by the parser


def _tame(tokens: Sequence[Token]) -> None:
    """No styles, which the content policy refuses, and no headings: the page has its own."""
    for token in tokens:
        token.attrs.pop("style", None)
        if token.type in ("heading_open", "heading_close"):
            token.tag = "p"
        if token.type == "link_open":
            token.attrs["rel"] = "noreferrer external"
        if token.type in ("fence", "code_block"):
            token.attrs["tabindex"] = "0"
        if token.children:
            _tame(token.children)


@register.filter
def bottleneck_label(name: str) -> str:
    """In a sentence: `memory capacity`, `HBM bandwidth`."""
    label = BOTTLENECK_WORDS.get(name, name)
    return label if label[:2].isupper() else label.lower()


@register.simple_tag
def document_state(document: Document) -> SafeString:
    """A document's state as a pill with a word."""
    word, kind = _STATES.get(State(document.state), ("Ready", "ready"))
    if document.state == State.READY and getattr(document, "replaced", False):
        word, kind = f"Replaced version {document.version}", "plain"
    elif document.state == State.READY and document.embedded < document.living:  # type: ignore[attr-defined]
        word, kind = "Ready for keyword search", "running"
    return format_html('<span class="badge badge--{}">{}</span>', kind, word)
