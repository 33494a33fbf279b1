"""The names of `indexes.vectors`; `__init__.py` imports each on first use."""

from indexes.vectors.choice import Choice as Choice
from indexes.vectors.library import FaissVectors as FaissVectors
from indexes.vectors.library import is_faiss_file as is_faiss_file
