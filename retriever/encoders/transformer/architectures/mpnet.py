"""MPNet (Song et al. 2020): a BERT without token types, with a learned bias for distances.

The attention bias of two pieces depends on the bucket of their distance, as in T5 (Raffel et al.
2020, Sec. 2.1).
"""

from __future__ import annotations

import math

import numpy as np

from retriever.encoders.transformer.architectures.bert import PARTS, WORDS
from retriever.encoders.transformer.architectures.post_norm import (
    PostNormNetwork,
    read_embeddings,
    read_heads,
    read_layers,
)
from retriever.encoders.transformer.network import Integers, WeightsReader
from retriever.encoders.transformer.tensors import WeightsMismatchError, to_values

_PARTS = PARTS | {
    "query": "attention.attn.q",
    "key": "attention.attn.k",
    "value": "attention.attn.v",
    "attention_output": "attention.attn.o",
    "attention_norm": "attention.LayerNorm",
}
# Id of the padding token. The configuration may name another.
_PADDING_ID = 1
# Number of distance buckets, and the distance from which the last one is used.
_BUCKETS = 32
_LARGEST_DISTANCE = 128


def read(reader: WeightsReader) -> PostNormNetwork:
    """Read an MPNet."""
    reader.require(hidden_act="gelu")
    reader.detect_prefix(WORDS)
    width = reader.size("hidden_size")
    heads = read_heads(reader, width)
    positions = read_embeddings(reader, "position", width)
    buckets = to_values(reader.table("encoder.relative_attention_bias.weight", heads))
    max_pieces = len(positions) - _PADDING_ID - 1
    if len(buckets) < _BUCKETS or max_pieces < 1:
        raise WeightsMismatchError(
            f"expected {_BUCKETS} distances and a position for each piece, found {len(buckets)} "
            f"and {len(positions)} rows"
        )
    return PostNormNetwork(
        words=reader.table(WORDS, width),
        positions=positions,
        types=None,
        norm=reader.affine("embeddings.LayerNorm", width),
        layers=read_layers(reader, "encoder.layer", _PARTS, width),
        heads=heads,
        epsilon=reader.number("layer_norm_eps", 1e-12),
        width=width,
        max_pieces=max_pieces,
        padding=_PADDING_ID,
        bias_by_offset=np.ascontiguousarray(buckets[distance_buckets(len(positions))].T),
    )


def distance_buckets(longest: int) -> Integers:
    """Return the bucket of each distance of key and query, -(longest - 1) to longest - 1."""
    distances = np.arange(1 - longest, longest)
    half = _BUCKETS // 2
    exact = half // 2
    lengths = np.abs(distances)
    # In single precision, like the training of the model.
    scale = np.float32(half - exact) / np.float32(math.log(_LARGEST_DISTANCE / exact))
    far_buckets = np.log(np.maximum(lengths, 1).astype(np.float32) / np.float32(exact)) * scale
    capped = np.minimum(exact + far_buckets.astype(np.int64), half - 1)
    buckets = np.where(lengths < exact, lengths, capped)
    return np.where(distances > 0, half + buckets, buckets)
