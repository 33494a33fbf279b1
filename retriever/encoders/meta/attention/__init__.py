"""Attention-weighted meta-embeddings: UNSUP and SUP of Takahashi and Bollegala (2022)."""

from retriever.encoders.meta.attention.fitting import ScoredPairs, fit_sup, fit_unsup
from retriever.encoders.meta.attention.settings import (
    AttentionSettings,
    History,
    MetaEpoch,
    UnsupSettings,
)

__all__ = [
    "AttentionSettings",
    "History",
    "MetaEpoch",
    "ScoredPairs",
    "UnsupSettings",
    "fit_sup",
    "fit_unsup",
]
