"""The names of `indexes.bm25`; `__init__.py` imports each on first use."""

from indexes.bm25.formulas import LABEL as LABEL
from indexes.bm25.formulas import LABEL_WEIGHT as LABEL_WEIGHT
from indexes.bm25.formulas import BM25Settings as BM25Settings
from indexes.bm25.formulas import BM25Variant as BM25Variant
from indexes.bm25.formulas import idf as idf
from indexes.bm25.postings import Postings as Postings
from indexes.bm25.scoring import BM25 as BM25
from indexes.bm25.scoring import SearchableSegment as SearchableSegment
from indexes.bm25.scoring import plain_terms as plain_terms
from indexes.protocol import Expansion as Expansion
from indexes.protocol import Term as Term
