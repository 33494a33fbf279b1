"""Metadata filters and facets. Other packages enter through the names imported here."""

from __future__ import annotations

from indexes.filters.grammar import Where as Where
from indexes.filters.grammar import compile_where as compile_where
from indexes.filters.grammar import filter_of_fields as filter_of_fields
from indexes.filters.grammar import id_forms as id_forms
from indexes.filters.grammar import parse_field as parse_field
from indexes.filters.grammar import point_at as point_at
from indexes.filters.grammar import type_mismatch as type_mismatch
from indexes.filters.grammar import written_field as written_field
from indexes.filters.grammar import written_value as written_value
