"""The names of `retriever.encoders.fusion`; `__init__.py` imports each on first use."""

from retriever.encoders.fusion.sbert_wk import SBERTWKSettings as SBERTWKSettings
from retriever.encoders.fusion.words import Unit as Unit
from retriever.encoders.fusion.words import WeightedWord as WeightedWord
from retriever.encoders.fusion.words import word_of_pieces as word_of_pieces
from retriever.encoders.fusion.words import word_spans as word_spans
from retriever.encoders.fusion.words import word_vectors as word_vectors
from retriever.encoders.fusion.words import word_weights as word_weights
