"""The names of `retriever.rerankers`; `__init__.py` imports each on first use."""

from retriever.rerankers.cross import CrossEncoder as CrossEncoder
from retriever.rerankers.cross import is_cross_encoder as is_cross_encoder
from retriever.rerankers.cross import load_cross_encoder as load_cross_encoder
from retriever.rerankers.cross import write_cross_encoder as write_cross_encoder
from retriever.rerankers.cross_training import train_cross_encoder as train_cross_encoder
from retriever.rerankers.folders import check_target as check_target
from retriever.rerankers.folders import is_reranker as is_reranker
from retriever.rerankers.folders import reranker_kind as reranker_kind
from retriever.rerankers.head import HeadReranker as HeadReranker
from retriever.rerankers.head import QueryMap as QueryMap
from retriever.rerankers.head import Scorer as Scorer
from retriever.rerankers.head import TrainedHead as TrainedHead
from retriever.rerankers.head import load_query_map as load_query_map
from retriever.rerankers.head import train_head as train_head
from retriever.rerankers.scorers import CrossHead as CrossHead
