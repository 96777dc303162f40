"""Filters of lists.  One FilterSet narrows a list for its page, which leaves out what is invalid, and for the REST API,
which refuses it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, reduce
from operator import or_
from typing import Any, Self
from urllib.parse import urlencode

import django_filters
from django import forms
from django.db import models
from django.db.models import F, OrderBy, Q, QuerySet
from django.utils.datastructures import MultiValueDict
from django_filters.rest_framework import DjangoFilterBackend

from formatting.text import clean


class TextFilter(django_filters.CharFilter):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"help_text": "Exact match."} | options)


class SearchFilter(TextFilter):
    """Each word in one of the columns, case-insensitive."""

    def __init__(self, *columns: str, **options: Any) -> None:
        super().__init__(**options)
        self.columns = columns

    def filter(self, rows: QuerySet[Any], text: str) -> QuerySet[Any]:
        for word in text.split()[:8]:
            rows = rows.filter(reduce(or_, (Q(**{f"{column}__icontains": word}) for column in self.columns)))
        return rows


class NumberFilter(django_filters.NumberFilter):
    """The key of a row."""

    field_class = forms.IntegerField

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, min_value=1, max_value=models.BigIntegerField.MAX_BIGINT, **options)


class _ValuesField(forms.MultipleChoiceField):
    def to_python(self, values: Any) -> list[str]:
        return list(dict.fromkeys(text[:100] for value in values or () if (text := value.strip())))[:50]

    def valid_value(self, value: str) -> bool:
        return True


class ValuesFilter(django_filters.MultipleChoiceFilter):
    """Any of the values given; the parameter is repeated.  lookup: `in`, or `overlap` for a column of lists."""

    field_class = _ValuesField

    def __init__(self, column: str, lookup: str = "in", **options: Any) -> None:
        super().__init__(column, help_text="Any of these values.", **options)
        self.lookup = lookup

    def filter(self, rows: QuerySet[Any], values: list[str]) -> QuerySet[Any]:
        return rows.filter(**{f"{self.field_name}__{self.lookup}": values}) if values else rows


class SortFilter(django_filters.ChoiceFilter):
    """Sorts by a column, descending with `-` before its name; rows without a value come last.

    columns: by name in the address.  then: order of rows with the same value.
    """

    def __init__(self, columns: Mapping[str, str], then: str = "-pk", **options: Any) -> None:
        named = [(f"{sign}{name}", word) for sign, word in (("", "ascending"), ("-", "descending")) for name in columns]
        super().__init__(choices=named, **options)
        self.columns, self.then = columns, then

    def filter(self, rows: QuerySet[Any], sort: str) -> QuerySet[Any]:
        if not sort:
            return rows
        column = self.columns[sort.removeprefix("-")]
        nulls_last = rows.model._meta.get_field(column).null or None
        return rows.order_by(OrderBy(F(column), descending=sort.startswith("-"), nulls_last=nulls_last), self.then)


class Filters(django_filters.FilterSet):
    """Filters by the columns of `Meta.fields`, and what a subclass adds."""

    FILTER_DEFAULTS = django_filters.FilterSet.FILTER_DEFAULTS | {
        models.CharField: {"filter_class": TextFilter},
        models.TextField: {"filter_class": TextFilter},
        models.IntegerField: {"filter_class": NumberFilter},
        models.ForeignKey: {
            "filter_class": NumberFilter,
            "extra": lambda field: {"help_text": f"Restrict to this {field.verbose_name}."},
        },
    }

    def __init__(self, data: Mapping[str, Any] | None = None, *args: Any, **options: Any) -> None:
        lists = data.lists() if isinstance(data, MultiValueDict) else (data or {}).items()
        given = {
            name: [clean(str(value)) for value in (values if isinstance(values, list | tuple) else [values])]
            for name, values in lists
        }
        super().__init__(MultiValueDict(given), *args, **options)

    @cached_property
    def asked(self) -> dict[str, Any]:
        """The valid values by name; empty text where there is none."""
        self.form.is_valid()
        return {name: self.form.cleaned_data.get(name) or "" for name in self.filters}

    @property
    def query(self) -> str:
        """The query of an address with the same filters."""
        return self.address()

    def address(self, **changed: Any) -> str:
        """Return the query of an address with these filters, some of them `changed`, from the first page."""
        values = self.asked | changed
        return urlencode({name: value for name, value in values.items() if value}, doseq=True)

    def toggled(self, name: str, value: Any) -> str:
        """Return the query of an address with one value of a filter chosen, or no longer where it is."""
        now = self.asked[name]
        if not isinstance(now, list):
            return self.address(**{name: "" if now == value else value})
        return self.address(**{name: [one for one in now if one != value] if value in now else [*now, value]})

    def without(self, *names: str) -> Self:
        """Return the same filters of the same rows, with nothing asked of some."""
        return type(self)({name: value for name, value in self.asked.items() if name not in names}, self.queryset)

    def kept(self, *names: str) -> list[tuple[str, Any]]:
        """Return (name, value) of what a form besides this one keeps in its address; `names` are its own."""
        pairs = [(name, value) for name, value in self.asked.items() if value and name not in names]
        return [(name, one) for name, value in pairs for one in (value if isinstance(value, list) else [value])]

    def unchanged(self, rows: QuerySet[Any], name: str, value: Any) -> QuerySet[Any]:
        """Return the rows as they are: the method of filters that sort, page or search what is left."""
        return rows


class ListFilters(DjangoFilterBackend):
    """Narrows the lists and exports of the REST API, and nothing else, by the view's `filterset_class` or
    `filterset_fields`."""

    filterset_base = Filters

    def get_filterset_class(self, view: Any, queryset: QuerySet[Any] | None = None) -> type[Filters] | None:
        return (
            super().get_filterset_class(view, queryset)
            if getattr(view, "action", "list") in ("list", "export")
            else None
        )
