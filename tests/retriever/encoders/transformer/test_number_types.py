"""Computing in fewer bits: close to float32, in any batch, with the quick paths of processors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from retriever.encoders.encoder import Encoder
from retriever.encoders.transformer.pretrained import pack_linear

SENTENCES = [
    "cat",
    "How do I sort a list of dictionaries by a value?",
    "The mitochondrion is the powerhouse of the cell. " * 8,
    "NASA's James Webb Space Telescope launched on 25 December 2021.",
    "Water boils at 100 °C (212 °F) at sea level. " * 10,
]


def test_bfloat16_is_close_to_float32_in_any_batch_and_the_same_encoder(minilm):
    bfloat16 = Encoder.load("::dtype=bfloat16", device="cpu")
    assert bfloat16.spec.fingerprint == minilm.spec.fingerprint
    assert "dtype=bfloat16" in str(bfloat16.spec)
    vectors = bfloat16.encode(SENTENCES)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert np.sum(minilm.encode(SENTENCES) * vectors, axis=1).min() > 0.9995
    alone = np.concatenate([bfloat16.encode([text]) for text in SENTENCES])
    assert np.sum(alone * vectors, axis=1).min() > 0.9999


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_packed_layers_give_what_plain_ones_do(dtype, bias):
    class Model(torch.nn.Sequential):
        device = torch.device("cpu")

    torch.manual_seed(0)
    model = Model(torch.nn.Linear(24, 40, bias=bias), torch.nn.Linear(40, 8, bias=bias))
    model = model.to(dtype).eval()
    model.dtype = dtype
    with torch.inference_mode():
        inputs = [torch.randn(*shape, 24).to(dtype) for shape in ((1,), (5,), (3, 7))]
        expected = [model(one) for one in inputs]
        pack_linear(model)
        for one, plain in zip(inputs, expected, strict=True):
            tolerance = 1e-5 if dtype == torch.float32 else 2e-2
            torch.testing.assert_close(model(one), plain, atol=tolerance, rtol=tolerance)
