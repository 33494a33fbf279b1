"""DistilBERT (Sanh et al. 2019): a BERT without token types, with other names."""

from __future__ import annotations

from retriever.encoders.transformer.architectures.bert import WORDS
from retriever.encoders.transformer.architectures.post_norm import (
    PostNormNetwork,
    read_embeddings,
    read_heads,
    read_layers,
)
from retriever.encoders.transformer.network import WeightsReader

_PARTS = {
    "query": "attention.q_lin",
    "key": "attention.k_lin",
    "value": "attention.v_lin",
    "attention_output": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "intermediate": "ffn.lin1",
    "output": "ffn.lin2",
    "output_norm": "output_layer_norm",
}
# Epsilon of the layer norms; no key of the configuration names it.
_EPSILON = 1e-12


def read(reader: WeightsReader) -> PostNormNetwork:
    """Read a DistilBERT."""
    reader.require(activation="gelu")
    reader.detect_prefix(WORDS)
    width = reader.size("dim")
    positions = read_embeddings(reader, "position", width)
    return PostNormNetwork(
        words=reader.table(WORDS, width),
        positions=positions,
        types=None,
        norm=reader.affine("embeddings.LayerNorm", width),
        layers=read_layers(reader, "transformer.layer", _PARTS, width),
        heads=read_heads(reader, width),
        epsilon=_EPSILON,
        width=width,
        max_pieces=len(positions),
    )
