"""BERT (Devlin et al. 2019)."""

from __future__ import annotations

from retriever.encoders.transformer.architectures.post_norm import (
    PostNormNetwork,
    read_embeddings,
    read_heads,
    read_layers,
)
from retriever.encoders.transformer.network import WeightsReader

WORDS = "embeddings.word_embeddings.weight"
PARTS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention_output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
}


def read(reader: WeightsReader) -> PostNormNetwork:
    """Read a BERT."""
    reader.require(
        hidden_act="gelu",
        position_embedding_type="absolute",
        is_decoder=False,
        add_cross_attention=False,
    )
    reader.detect_prefix(WORDS)
    width = reader.size("hidden_size")
    positions = read_embeddings(reader, "position", width)
    return PostNormNetwork(
        words=reader.table(WORDS, width),
        positions=positions,
        types=read_embeddings(reader, "token_type", width),
        norm=reader.affine("embeddings.LayerNorm", width),
        layers=read_layers(reader, "encoder.layer", PARTS, width),
        heads=read_heads(reader, width),
        epsilon=reader.number("layer_norm_eps", 1e-12),
        width=width,
        max_pieces=len(positions),
    )
