"""Dynamic int8 on all-MiniLM-L6-v2, by ONNX Runtime and by PyTorch, compared with bfloat16.

    python benchmarks/int8.py [--data FOLDER] [--turns N] [--size N]

Needs `python -m pip install onnx onnxscript onnxruntime`. Rates are over passages of about 120 word
pieces, each chunk encoded by all of them in turn; cosines to float32 are over the sentences of
STS-B test, and Spearman's correlation is over its 1,379 pairs.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from encoding_rate import joined
from transformers import AutoModel

from eval.datasets.pairs import ScoredPairs, read_pairs
from eval.metrics.correlation import Correlation
from retriever import Encoder
from retriever.encoders.computing import BATCH_PIECES, token_batches
from retriever.encoders.model_folders import find_model
from retriever.encoders.settings import DEFAULT_MODEL

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
BESIDE = "retriever bfloat16"

Encode = Callable[[Sequence[str]], Any]
# (texts, pieces) ids and mask to (texts, pieces, width).
States = Callable[[Any, Any], Any]


class LastState(torch.nn.Module):
    """The last hidden state alone, as a graph to export has it."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """(texts, pieces) int64 each to (texts, pieces, width) float32."""
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    data = os.environ.get("RETRIEVER_DATA")
    parser.add_argument("--data", type=Path, default=data, required=data is None)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--size", type=int, default=256, help="passages a turn")
    arguments = parser.parse_args()
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"{', '.join(missing)} missing: python -m pip install {' '.join(PACKAGES)}")
    warnings.simplefilter("ignore")
    with (arguments.data / "oewn_sentences/corpus.jsonl").open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in itertools.islice(lines, 40_000)]
    chunks = joined(texts, 5, 16, arguments.turns, arguments.size)
    pairs = read_pairs([arguments.data / "stsb/test.tsv"])
    full = Encoder.load("::dtype=float32", device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        ways = ways_to_encode(full, Path(folder))
        print(f"| {torch.get_num_threads()} threads | pieces/s | to bfloat16's ", end="")
        print("| least cosine | mean cosine | STS-B |")
        print("|---|---|---|---|---|---|")
        for name, rate in rates(ways, chunks, full).items():
            print(f"| {name} | {rate} | {quality(ways[name], pairs, full)} |")


def ways_to_encode(full: Any, folder: Path) -> dict[str, Encode]:
    """Each way by its name; `folder` keeps the graphs as long as they are used."""
    model = LastState(AutoModel.from_pretrained(find_model(DEFAULT_MODEL).path).eval())
    graph = export(model, folder / "float32.onnx")
    without = quantized(graph, folder / "without.onnx", second_matrices(graph))
    by_torch = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, torch.qint8)

    def torch_states(ids: Any, mask: Any) -> Any:
        with torch.inference_mode():
            return by_torch(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()

    return {
        BESIDE: Encoder.load("::dtype=bfloat16", device="cpu").encode,
        "PyTorch int8": pooled(full, torch_states),
        "ONNX Runtime float32": pooled(full, onnx_states(graph)),
        "ONNX Runtime int8": pooled(full, onnx_states(quantized(graph, folder / "int8.onnx", []))),
        "the same, without each block's last matrix": pooled(full, onnx_states(without)),
    }


def export(model: torch.nn.Module, path: Path) -> Path:
    """The model as an ONNX graph for any number of texts and pieces."""
    # Two tensors: of one that is given twice the graph would read the second alone.
    example = tuple(torch.ones(2, 16, dtype=torch.int64) for _ in range(2))
    axes = {0: torch.export.Dim("texts"), 1: torch.export.Dim("pieces", max=512)}
    shapes = {"input_ids": axes, "attention_mask": axes}
    how: dict[str, Any] = {"dynamo": True, "opset_version": 18, "verbose": False}
    torch.onnx.export(model, example, path, dynamic_shapes=shapes, **how)
    return path


def quantized(graph: Path, path: Path, left_out: Sequence[str]) -> Path:
    """The graph with the weights of its matrix products in int8, one scale a column."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    kind = {"op_types_to_quantize": ["MatMul"], "weight_type": QuantType.QInt8, "per_channel": True}
    quantize_dynamic(graph, path, nodes_to_exclude=list(left_out), **kind)
    return path


def second_matrices(graph: Path) -> list[str]:
    """Names of the products that bring a feed-forward block back to the model's width."""
    import onnx

    found = onnx.load(graph).graph
    shapes = {one.name: list(one.dims) for one in found.initializer}
    return [
        node.name
        for node in found.node
        if node.op_type == "MatMul"
        and len(shape := shapes.get(node.input[1], [])) == 2
        and shape[0] == 4 * shape[1]
    ]


def onnx_states(graph: Path) -> States:
    """A graph's last hidden states, by ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    return lambda ids, mask: session.run(None, {"input_ids": ids, "attention_mask": mask})[0]


def pooled(tokenizer: Any, states: States) -> Encode:
    """Texts to unit vectors: in batches as ours are, the mean over the pieces of each text."""

    def encode(texts: Sequence[str]) -> Any:
        pieces = tokenizer.truncate(texts)
        vectors = np.zeros((len(texts), tokenizer.spec.dimensions), np.float32)
        for rows in token_batches([len(ids) for ids in pieces], BATCH_PIECES["float32"]):
            mask = np.zeros((len(rows), len(pieces[rows[0]])), np.int64)
            ids = np.zeros_like(mask)
            for place, row in enumerate(rows):
                cells = place, slice(len(pieces[row]))
                ids[cells], mask[cells] = pieces[row], 1
            vectors[rows] = (states(ids, mask) * mask[:, :, None].astype(np.float32)).sum(axis=1)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    return encode


def rates(ways: Mapping[str, Encode], chunks: Sequence[list[str]], full: Any) -> dict[str, str]:
    """Word pieces a second, and times bfloat16's rate: medians over the chunks."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way(chunks[0][:64])
    for chunk in chunks:
        for name, way in ways.items():
            started = time.perf_counter()
            way(chunk)
            seconds[name].append(time.perf_counter() - started)
    pieces = [sum(map(len, full.truncate(chunk))) for chunk in chunks]
    found = {}
    for name, times in seconds.items():
        rate = statistics.median(n / t for n, t in zip(pieces, times, strict=True))
        ratio = statistics.median(a / b for a, b in zip(seconds[BESIDE], times, strict=True))
        found[name] = f"{rate:.0f} | {ratio:.2f}"
    return found


def quality(encode: Encode, pairs: ScoredPairs, full: Any) -> str:
    """Least and mean cosine to float32 over the sentences, and Spearman times 100."""
    texts = [*pairs.left, *pairs.right]
    vectors = encode(texts)
    cosines = np.sum(vectors * full.encode(texts), axis=1, dtype=np.float64)
    products = vectors[: len(pairs)] * vectors[len(pairs) :]
    # Equal sentences have cosine 1 but for rounding, and tie.
    scores = np.round(np.sum(products, axis=1, dtype=np.float64), 6)
    (spearman,) = 100 * Correlation(pairs.gold)(scores[None])
    return f"{cosines.min():.5f} | {cosines.mean():.5f} | {spearman:.2f}"


if __name__ == "__main__":
    main()
