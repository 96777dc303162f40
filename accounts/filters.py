"""Filters of lists.  One FilterSet narrows a list for its page, which leaves out what is invalid, and for the REST API,
which refuses it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any
from urllib.parse import urlencode

import django_filters
from django import forms
from django.db import models
from django.db.models import F, OrderBy, Q, QuerySet
from django_filters.rest_framework import DjangoFilterBackend

from accounts.text import clean


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

    def __init__(self, data: Mapping[str, str] | None = None, *args: Any, **options: Any) -> None:
        super().__init__({name: clean(value) for name, value in (data or {}).items()}, *args, **options)

    @property
    def asked(self) -> dict[str, Any]:
        """The valid values by name; empty text where there is none."""
        self.form.is_valid()
        return {name: self.form.cleaned_data.get(name) or "" for name in self.filters}

    @property
    def query(self) -> str:
        """The query of an address with the same filters."""
        return urlencode({name: value for name, value in self.asked.items() if value})


class ListFilters(DjangoFilterBackend):
    """Narrows the lists of the REST API by the view's `filterset_class` or `filterset_fields`, and nothing else."""

    filterset_base = Filters

    def get_filterset_class(self, view: Any, queryset: QuerySet[Any] | None = None) -> type[Filters] | None:
        return super().get_filterset_class(view, queryset) if getattr(view, "action", "list") == "list" else None
