"""RoBERTa (Liu et al. 2019), XLM-RoBERTa and CamemBERT: a BERT with shifted positions.

The first piece has the position after the id of the padding token.
"""

from __future__ import annotations

from dataclasses import replace

from retriever.encoders.transformer.architectures import bert
from retriever.encoders.transformer.architectures.post_norm import PostNormNetwork
from retriever.encoders.transformer.network import WeightsReader
from retriever.encoders.transformer.tensors import WeightsMismatchError

# Id of the padding token where the configuration names none.
_PADDING_ID = 1


def read(reader: WeightsReader) -> PostNormNetwork:
    """Read a RoBERTa."""
    network = bert.read(reader)
    padding = reader.whole_number("pad_token_id", _PADDING_ID)
    max_pieces = network.max_pieces - padding - 1
    if max_pieces < 1:
        raise WeightsMismatchError(
            f"pad_token_id: expected an id below {network.max_pieces}, found {padding}"
        )
    return replace(network, padding=padding, max_pieces=max_pieces)
