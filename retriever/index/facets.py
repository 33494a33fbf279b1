"""Counts of the values of metadata fields, and of the months of their dates."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from indexes.filters import Facet, FacetValue, compile_where, parse_field, written_value
from retriever.errors import ConfigError, FilterError, require_several
from retriever.search.opened import describe_unknown_fields
from retriever.search.queries import check_query, query_terms, warn_doubtful
from retriever.settings import GREATEST

if TYPE_CHECKING:
    from indexes.filters import Facets
    from retriever.search.opened import OpenedIndex

# The end of a name whose dates are counted by month.
_BY_MONTH = ":month"
_OTHER_PERIOD = re.compile(r"([\w.]+):\w+")
_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}(?![0-9])")
_YEAR = re.compile(r"[0-9]{4}")


def count_facets(
    opened: OpenedIndex,
    fields: Iterable[str],
    text: str | None,
    where: str | Mapping[str, Any] | None,
    *,
    limit: int,
    raw: bool,
) -> Facets:
    """Count the documents that have each value of metadata fields; see `Index.facets`."""
    require_several("fields", fields)
    if limit < 1:
        raise ConfigError(f"limit: expected 1 or more, found {limit}")
    names = list(fields)
    monthly = {name: name.removesuffix(_BY_MONTH) for name in names if name.endswith(_BY_MONTH)}
    plain_names = [name for name in names if name not in monthly]
    for name in plain_names:
        if match := _OTHER_PERIOD.fullmatch(name):
            raise FilterError(f"field {name!r}: dates are counted by month: write {match[1]}:month")
    compiled = None if where is None else compile_where(where)
    top_fields = [parse_field(monthly.get(name, name))[0] for name in names]
    if text is not None:
        check_query(text)
    with opened.view() as view:
        warn_doubtful(opened, view, compiled, stacklevel=4)
        if problem := describe_unknown_fields(view, top_fields):
            warnings.warn(f"facets: {problem}", stacklevel=3)
        terms = None
        if text is not None:
            terms = query_terms(opened, view, text, has_beginnings=not raw)
        facets = view.facets(plain_names, compiled, terms, limit)
        if not monthly:
            return facets
        dates = view.facets([*monthly.values()], compiled, terms, GREATEST).fields
    counted = {name: _count_months(name, dates[field], limit) for name, field in monthly.items()}
    by_name = {**facets.fields, **counted}
    return facets._replace(fields={name: by_name[name] for name in names})


def _count_months(name: str, dates: Facet, limit: int) -> Facet:
    """Return the newest months of a facet of dates; values that are no dates do not count."""
    months: dict[str, list[FacetValue]] = {}
    for value in dates.values:
        text = value.value if isinstance(value.value, str) else ""
        if _MONTH.match(text):
            months.setdefault(text[:7], []).append(value)
        elif _YEAR.fullmatch(text):
            months.setdefault(text, []).append(value)
    newest = sorted(months, reverse=True)
    values = [_add_counts(dates.field, month, months[month]) for month in newest[:limit]]
    return Facet(name, tuple(values), len(months))


def _add_counts(field: str, month: str, values: list[FacetValue]) -> FacetValue:
    """Return the counts of a month, or of a year without a month, and the filter for it."""
    counts = [value.matches for value in values if value.matches is not None]
    matches = sum(counts) if counts else None
    written = written_value(month)
    where = f"{field} between {written} and {written}"
    if _YEAR.fullmatch(month):
        where = f"{field} = {written}"
    return FacetValue(month, sum(value.documents for value in values), matches, where)
