"""The names of `retriever.search`; `__init__.py` imports each on first use."""

from indexes.bm25 import BM25 as BM25
from indexes.bm25 import BM25Settings as BM25Settings
from indexes.bm25 import Postings as Postings
from indexes.bm25 import SearchableSegment as SearchableSegment
from retriever.search.engine import Hit as Hit
from retriever.search.fusion import ComponentScores as ComponentScores
from retriever.search.fusion import best_passages as best_passages
from retriever.search.fusion import fuse as fuse
from retriever.search.opened import earlier_terms as earlier_terms
from retriever.search.reranking import Reranker as Reranker
from retriever.search.reranking import load_reranker as load_reranker
from retriever.search.settings import DEFAULT_WEIGHT as DEFAULT_WEIGHT
from retriever.search.settings import USED_BY_METHOD as USED_BY_METHOD
from retriever.search.settings import FusionSettings as FusionSettings
from retriever.search.settings import SearchSettings as SearchSettings
from retriever.search.settings import search_fields as search_fields
from retriever.search.settings import search_settings as search_settings
from retriever.search.syntax import ParsedQuery as ParsedQuery
from retriever.search.syntax import operators_note as operators_note
from retriever.search.syntax import parse_query as parse_query
