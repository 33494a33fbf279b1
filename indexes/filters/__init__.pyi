"""The names of `indexes.filters`; `__init__.py` imports each on first use."""

from indexes.filters.grammar import Where as Where
from indexes.filters.grammar import compile_where as compile_where
from indexes.filters.grammar import filter_of_fields as filter_of_fields
from indexes.filters.grammar import id_forms as id_forms
from indexes.filters.grammar import narrow_comparison as narrow_comparison
from indexes.filters.grammar import parse_field as parse_field
from indexes.filters.grammar import point_at as point_at
from indexes.filters.grammar import type_mismatch as type_mismatch
from indexes.filters.grammar import written_field as written_field
from indexes.filters.grammar import written_value as written_value
from indexes.protocol import Facet as Facet
from indexes.protocol import Facets as Facets
from indexes.protocol import FacetValue as FacetValue
from indexes.protocol import FieldSummary as FieldSummary
