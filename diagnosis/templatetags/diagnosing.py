"""Parts of the diagnosis pages: sentences with evidence, strips of steps, the tree of modules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from django import template
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from diagnosis import module_tree, presentation
from diagnosis.analyzer import names
from diagnosis.compare import OpChange
from diagnosis.module_tree import ANY_NUMBER
from diagnosis.strips import HEIGHT, WIDTH, Strip
from experiments import bars, formatting

register = template.Library()

_RESOURCES = (("compute", "compute"), ("hbm", "hbm"), ("ici", "ici"), ("other", "idle"))
_PHASES = (("forward", "Forward"), ("backward", "Backward"), ("recompute", "Recompute"))


@register.simple_tag(takes_context=True)
def strip(context: Mapping[str, Any], row: Strip) -> SafeString:
    """One core's steps; each opens its parts."""
    paths = format_html_join("", '<path class="f-{}" d="{}"/>', row.paths)
    base = context["evidence_base"]
    cells = format_html_join(
        "",
        '<a href="{0}{1}/" hx-get="{0}{1}/" hx-target="#drawer-body" tabindex="-1">'
        '<rect class="stripcell" x="{2}" width="{3}" height="{4}"><title>{5}</title></rect></a>',
        ((base, cell.ref, cell.x, cell.width, HEIGHT, cell.title) for cell in row.cells),
    )
    return format_html(
        '<svg class="strip" viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true">{}{}</svg>',
        WIDTH, HEIGHT, paths, cells,
    )  # fmt: skip


@register.simple_tag
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
            '<div class="node"><div class="nodeline node--rest"><span class="nodename lv-{}">{} more op{}</span>'
            '<span></span><span></span><span class="n">{}</span></div></div>',
            min(level + 1, 8), formatting.number(hidden), "" if hidden == 1 else "s", formatting.share(rest),
        )  # fmt: skip
    opened = SafeString(" open") if level < depth else SafeString("")
    # The link is next to the summary, not in it: a control within a control cannot be reached by all.
    return format_html(
        '<div class="node"><details{}><summary>{}</summary>{}</details>{}</div>', opened, line, inner, link
    )


def _node_link(node: Mapping[str, Any], ops_url: str) -> SafeString:
    return format_html(
        '<a class="ops" href="{}?scope={}">{} op{}<span class="sr"> of {}</span></a>', ops_url,
        quote(node["scope"] or "none"), formatting.number(node["ops"]), "" if node["ops"] == 1 else "s",
        node["name"] or "no path",
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


@register.filter
def config_value(value: Any, key: str = "") -> str:
    """A value of the configuration as its file has it; an axis that a mesh does not name has size one."""
    if value is None and key.startswith("mesh."):
        return "1"
    if value is None or value == "" or value == []:
        return "not given"
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return formatting.number(value) if isinstance(value, int) and not isinstance(value, bool) else str(value)


@register.simple_tag
def delta_bar(change: float, scale: float) -> SafeString:
    """A change to the left (gained) or right (lost) of the middle; decorative, the number is next to it."""
    part = min(1.0, abs(change) / scale) * 50 if scale else 0.0
    x = 50.0 if change > 0 else 50.0 - part
    return format_html(
        '<svg class="delta" aria-hidden="true"><rect class="f-{}" x="{}%" width="{}%" height="100%"/>'
        '<line x1="50%" x2="50%" y1="0" y2="100%"/></svg>',
        "loss" if change > 0 else "gain", f"{x:.2f}", f"{part:.2f}",
    )  # fmt: skip


@register.simple_tag
def op_label(row: OpChange) -> SafeString:
    """What the ops are, without the wrappers of their path; the phase tells the passes of one module apart."""
    short = module_tree.scope(row.label) or row.label
    phase = names.phase(row.label) if short != row.label else ""
    where = format_html(' <small class="faint">{}</small>', phase) if phase else SafeString("")
    return format_html('<span class="mono">{}</span>{}', short, where)


@register.simple_tag
def op_links(keys: Any, ranks: Mapping[str, tuple[int, str]], experiment: int) -> SafeString:
    """The ops behind a change, each leading to its page."""
    known = [ranks[key] for key in keys if key in ranks]
    return format_html_join(
        ", ", '<a class="mono" href="{}">{}</a>',
        ((reverse("op", args=[experiment, rank]), name) for rank, name in known),
    )  # fmt: skip


@register.filter
def over_roof(rows: Any) -> str:
    """Why an op, or any op of a table, reaches more than its roof; empty where none does.

    rows: an efficiency, or rows with one.
    """
    values = [row.roofline_efficiency for row in rows] if isinstance(rows, Iterable) else [rows]
    return presentation.OVER_ROOF if any(presentation.is_over_roof(value) for value in values) else ""
