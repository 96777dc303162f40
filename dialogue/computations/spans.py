"""The tag of answer templates that prints a stored sentence: `{% spans "it.insight" %}`."""

from __future__ import annotations

from django import template
from django.template import Context, Variable

from formatting.numbers import whole_number

register = template.Library()


@register.simple_tag(takes_context=True)
def spans(context: Context, path: str, *indices: int) -> str:
    """Return references to all spans at `path`; each `#` in it is the next of the zero-based `indices`.

    `{% spans "rows.#.why" forloop.counter0 %}` gives `{rows[0].why[0]}{rows[0].why[1]}`.
    """
    for index in indices:
        path = path.replace("#", str(index), 1)
    keys = path.split(".")
    reference = keys[0] + "".join(f"[{key}]" if whole_number(key) is not None else f".{key}" for key in keys[1:])
    return "".join(f"{{{reference}[{number}]}}" for number in range(len(Variable(path).resolve(context))))
