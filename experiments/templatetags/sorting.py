"""Links that keep the address: the same page with another sort, filter or page number, by htmx and without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()


def _address(context: Mapping[str, Any], url: str, changes: Mapping[str, Any]) -> str:
    """The address of `url` with the query of this request and the changes; empty values drop out.

    url: a URL name, or an address.  Another sort or filter starts at the first page.
    """
    query = context["request"].GET.copy()
    if "page" not in changes:
        query.pop("page", None)
    for key, value in changes.items():
        query.pop(key, None)
        if value not in ("", None):
            query[key] = str(value)
    path = url if url.startswith("/") else reverse(url)
    return f"{path}?{query.urlencode()}" if query else path


@register.simple_tag(takes_context=True)
def narrowed(
    context: Mapping[str, Any],
    url: str,
    target: str,
    *,
    query: str | None = None,
    here: bool = False,
    column: str = "",
    value: str = "",
    **changes: Any,
) -> SafeString:
    """Attributes of a link: `href`, and the same by htmx into `target`.

    query: in place of this request's with the changes.  here: a part of a page, whose own address stays.
    column, value: a filter by its name.
    """
    if query is None:
        address = _address(context, url, changes | ({column: value} if column else {}))
    else:
        address = reverse(url) + (f"?{query}" if query else "")
    push = SafeString("" if here else ' hx-push-url="true"')
    return format_html('href="{0}" hx-get="{0}" hx-target="{1}"{2}', address, target, push)


@register.simple_tag(takes_context=True)
def sort_head(
    context: Mapping[str, Any],
    url: str,
    target: str,
    key: str,
    label: str,
    sort: str,
    css: str = "",
    descending: bool = False,
) -> SafeString:
    """A column head that sorts; a second click turns the order round.  descending: what the first click gives."""
    now = {key: "ascending", f"-{key}": "descending"}.get(sort)
    first, second = (f"-{key}", key) if descending else (key, f"-{key}")
    link = narrowed(context, url, target, here=url.startswith("/"), sort=second if sort == first else first)
    order = format_html(' aria-sort="{}"', now) if now else SafeString("")
    return format_html('<th class="{}"{}><a class="sort" {}>{}</a></th>', css, order, link, label)
