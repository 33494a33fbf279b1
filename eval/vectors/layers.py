"""The pooled vector of every hidden state of texts, cached like any other vector.

All layers are an encoder of their own: concatenated, without a head and without normalization. So
`eval.vectors.embedding.embed_all` computes them beside other encoders of the same model, for each
pooling, from the same forward pass, and its cache keeps them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.settings import Pooling, parse_encoder
from retriever.errors import ConfigError

# The settings that turn layers into a vector: a sweep over layers decides them itself.
_DECIDED = ("layers", "fusion", "pooling", "normalize")


def layer_form(form: str, pooling: Pooling) -> str:
    """The text form of the encoder that gives every layer of a model, pooled.

    Args:
        form: text form of an encoder; its model, prompts, window, number format and special tokens
            are kept.
        pooling: over the word pieces of each layer.

    Raises:
        ConfigError: the form has layers, a fusion, a pooling, a head or a normalization, or a
            static method.
    """
    asked = parse_encoder(form)
    if asked.static is not None:
        raise ConfigError(f"{form}: a static encoder has no layers; name a transformer")
    for name in _DECIDED:
        value = getattr(asked, name)
        if value is not None:
            raise ConfigError(
                f"{form}: found {name}={value}, but every layer is scored as it is; leave {name} "
                "out"
            )
    if asked.head:
        raise ConfigError(f"{form}: layers are scored without a head; leave head out")
    return str(
        replace(asked, layers="all", fusion="concat", pooling=pooling, head=False, normalize=False)
    )


def split_layers(vectors: NDArray[np.float32], depth: int) -> NDArray[np.float32]:
    """The vectors of `layer_form`'s encoder, layer by layer.

    Args:
        vectors: (texts, hidden states times width) float32.
        depth: transformer layers of the model, `Encoder.depth`.

    Returns:
        (texts, depth + 1, width) float32, the embedding output first; a view.
    """
    return vectors.reshape(len(vectors), depth + 1, -1)
