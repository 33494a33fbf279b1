"""The pooled vector of every hidden state of texts, kept on disk like any other vector.

Layers are an encoder of their own: all of them concatenated, as long as they are, without a head.
So `eval.vectors.embedding.embed_all` gives them beside other encoders of the same model, for each
pooling, out of the same forward pass, and its cache keeps them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.settings import EncoderSettings, Pooling, parse_encoder
from retriever.errors import ConfigError

# What decides how layers become a vector: not asked of a sweep over layers.
_DECIDED = ("layers", "fusion", "pooling", "normalize")


def layer_form(form: str, pooling: Pooling) -> str:
    """The text form of the encoder that gives every layer of a model, pooled.

    Args:
        form: the text form of an encoder: its model, prompt, window, number type and special
            tokens count.
        pooling: over the word pieces of each layer.

    Raises:
        ConfigError: it names layers, a fusion, a pooling, a head or a normalisation, which the
            sweep decides itself, or a static method.
    """
    asked = parse_encoder(form)
    if asked.static is not None:
        raise ConfigError(f"{form}: a static encoder has no layers; name a transformer")
    for name in _DECIDED:
        value = getattr(asked, name)
        if value is not None:
            raise ConfigError(
                f"{form}: {name}={value}, but every layer is looked at, as it is; leave {name} out"
            )
    if asked.head:
        raise ConfigError(f"{form}: what follows a head is no layer; leave head out")
    return str(_all_layers(asked, pooling))


def _all_layers(asked: EncoderSettings, pooling: Pooling) -> EncoderSettings:
    return replace(
        asked, layers="all", fusion="concat", pooling=pooling, head=False, normalize=False
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
