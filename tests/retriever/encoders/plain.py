"""Reference vectors from transformers alone, for the tests of encoders."""

from __future__ import annotations

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

from tests.retriever.encoders.architectures import TEXTS


def unit(vectors):
    """Vectors of length 1, but those of zeros."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


class Plain:
    """Encoder that runs transformers alone, one unpadded text at a time."""

    def __init__(self, folder):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()
        self.texts = [self.tokenizer(text, return_special_tokens_mask=True) for text in TEXTS]
        self.special = [np.array(text["special_tokens_mask"], bool) for text in self.texts]
        self.states = [self._states([text])[:, 0] for text in TEXTS]

    def padded(self):
        """The same from one batch, padded on the side that the tokenizer pads on."""
        states = self._states(list(TEXTS))
        left = self.tokenizer.padding_side == "left"
        cut = [slice(-len(one), None) if left else slice(len(one)) for one in self.special]
        return [states[:, row, places] for row, places in enumerate(cut)]

    def _states(self, texts):
        inputs = self.tokenizer(texts, padding=len(texts) > 1, return_tensors="pt")
        with torch.inference_mode():
            return torch.stack(self.model(**inputs, output_hidden_states=True)[-1]).numpy()

    def pooled(self, pooling):
        """The pooled vector of every hidden state of each text: (texts, layers, width)."""
        kind = pooling.removeprefix("pooling=").removesuffix("::special-tokens=drop")
        rows = []
        for states, special, text in zip(self.states, self.special, self.texts, strict=True):
            ids = np.array(text["input_ids"])
            if kind in ("cls", "sep"):
                wanted = getattr(self.tokenizer, f"{kind}_token_id")
                places = np.flatnonzero(special & (ids == wanted))[-1:]
            elif pooling.endswith("drop"):
                places = np.flatnonzero(~special)
            else:
                places = np.arange(len(ids))
            if len(places) == 0:
                rows.append(np.zeros(states[:, 0].shape))
            elif kind == "max":
                rows.append(states[:, places].max(axis=1))
            else:
                rows.append(states[:, places].astype(np.float64).mean(axis=1))
        return np.stack(rows)
