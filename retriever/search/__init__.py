"""Ranking: the engine, fusion of scores, reranking; and BM25 over texts in memory, without an index
folder, for evaluations.
"""

from indexes import BM25 as BM25
from indexes import BM25Settings as BM25Settings
from indexes import Postings as Postings
from indexes import SearchableSegment as SearchableSegment
