"""The tree of modules as nested disclosures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

import formatting
from diagnosis.module_tree import ANY_NUMBER
from experiments import bars

_RESOURCES = (("compute", "compute"), ("hbm", "hbm"), ("ici", "ici"), ("other", "idle"))
_PHASES = (("forward", "Forward"), ("backward", "Backward"), ("recompute", "Recompute"))


def module_nodes(tree: Mapping[str, Any], ops_url: str, depth: int = 2, least: float = 0.0) -> SafeString:
    """The tree below its root as nested disclosures.  depth: levels that are open; least: smallest share shown."""
    children = tree.get("children") or ()
    whole = tree.get("share") or 1.0
    # A single root (the jitted function) tells nothing to open.
    return mark_safe("".join(_node(child, ops_url, 1, depth, least, whole) for child in children))


def _node(node: Mapping[str, Any], ops_url: str, level: int, depth: int, least: float, whole: float) -> SafeString:
    children = [child for child in node["children"] if child["share"] >= least]
    line, link = _node_line(node, level, whole), _node_link(node, ops_url)
    if not children:
        return format_html('<div class="node">{}{}</div>', line, link)
    inner = mark_safe("".join(_node(child, ops_url, level + 1, depth, least, whole) for child in children))
    hidden = node["ops"] - sum(child["ops"] for child in children)
    if hidden > 0:
        rest = max(0.0, node["share"] - sum(child["share"] for child in children))
        inner += format_html(
            '<div class="node"><div class="nodeline node--rest"><span class="nodename lv-{}">{}</span>'
            '<span></span><span></span><span class="n">{}</span></div></div>',
            min(level + 1, 8), formatting.counted(hidden, "more op"), formatting.share(rest),
        )  # fmt: skip
    opened = SafeString(" open") if level < depth else SafeString("")
    # The link is next to the summary, not in it: a control within a control cannot be reached by all.
    return format_html(
        '<div class="node"><details{}><summary>{}</summary>{}</details>{}</div>', opened, line, inner, link
    )


def _node_link(node: Mapping[str, Any], ops_url: str) -> SafeString:
    return format_html(
        '<a class="ops" href="{}?scope={}">{}<span class="sr"> of {}</span></a>', ops_url,
        quote(node["scope"] or "none"), formatting.counted(node["ops"], "op"), node["name"] or "no path",
    )  # fmt: skip


def _share(share: float) -> str:
    return str(formatting.share(share)) if share else "–"


def _node_line(node: Mapping[str, Any], level: int, whole: float) -> SafeString:
    terms = [bars.Term(key, key, css, node["resources"][key]) for key, css in _RESOURCES if node["resources"].get(key)]
    rects = format_html_join(
        "", '<rect class="f-{}" x="{}" width="{}" height="100%"/>',
        ((s.term.css, s.x, s.width) for s in bars.segments(terms, whole)),
    )  # fmt: skip
    phases = format_html_join(
        "", '<span class="n phase"><span class="sr">{} </span>{}</span>',
        ((words, _share(node["phases"].get(key) or 0.0)) for key, words in _PHASES),
    )  # fmt: skip
    name = node["name"]
    merged = node["merged"]
    shown = format_html("<code>{}</code>", name.replace(ANY_NUMBER, "*") if merged > 1 else name) if name else "no path"
    many = format_html(' <small class="faint">{} grouped</small>', formatting.number(merged)) if merged > 1 else ""
    return format_html(
        '<div class="nodeline"><span class="nodename lv-{}">{}{}</span><svg class="bar bar--s" aria-hidden="true">'
        '{}</svg><span class="n">{}</span><span class="n"><b>{}</b></span>{}<span></span></div>',
        min(level, 8), shown, many, rects,
        "–" if node["time_s"] is None else formatting.seconds(node["time_s"]), formatting.share(node["share"]), phases,
    )  # fmt: skip
