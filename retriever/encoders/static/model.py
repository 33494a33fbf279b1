"""A static encoder and its folder.

::

    static.json           method, parameters, provenance; written last
    vectors.safetensors   vectors and, if fitted, weights, components and shares
    vocabulary.txt        one word per line, or, for a model's word pieces, tokenizer.json
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from indexes.files import whole_folder
from retriever.encoders.folder_form import FolderForm, array_digest
from retriever.encoders.model_folders import MALFORMED
from retriever.encoders.registry import (
    STATIC_FILE,
    Batches,
    EncoderKind,
    EncoderModel,
    LoadContext,
    Span,
    is_folder_with,
    plain_settings,
)
from retriever.encoders.settings import DEFAULT_MODEL, EncoderSettings, Static
from retriever.encoders.spec import EncoderSpec
from retriever.encoders.static.settings import FITTED
from retriever.encoders.static.words import (
    FileTokenizer,
    FittedWeights,
    Lexicon,
    PieceTokenizer,
    find_lexicon,
    flatten,
    sentence_vectors,
    words_digest,
)
from retriever.errors import ConfigError

_CONTENT = {"words": "vocabulary.txt", "word-pieces": "tokenizer.json"}
FORM = FolderForm(
    what="a static encoder's folder",
    command="retriever train static",
    again="make it again",
    version=1,
    settings=STATIC_FILE,
    arrays="vectors.safetensors",
    other_files=tuple(_CONTENT.values()),
    keys={
        "format": int,
        "method": str,
        "kind": str,
        "parameters": dict,
        "provenance": dict,
        "vocabulary": str,
        "tokenizer": str | None,
        "unknown": int | None,
        "weights": str,
    },
    choices={"method": get_args(Static), "kind": tuple(_CONTENT)},
)
# Default window in words.
WINDOW = 512
# Fields of `FittedWeights` that are arrays.
_FITTED = ("weights", "components", "shares")


class StaticModel(EncoderModel):
    """A static encoder, made with `load`, `fit_static` or `fit_lsa`.

    `sif` and `usif` need `fitted`. `provenance` is shown to the user and affects no vector.
    """

    def __init__(
        self,
        lexicon: Lexicon,
        method: Static,
        fitted: FittedWeights | None,
        provenance: Mapping[str, Any],
    ) -> None:
        self.lexicon = lexicon
        self.method = method
        self.fitted = fitted
        self.provenance = provenance
        self.dimensions = lexicon.vectors.shape[1] * (3 if method == "p-mean" else 1)
        self._tensors = {"vectors": lexicon.vectors}
        if fitted is not None:
            self._tensors |= {name: getattr(fitted, name) for name in _FITTED}
        content: dict[str, Any] = {"vocabulary": lexicon.digest, "method": method}
        content |= {name: array_digest(tensor) for name, tensor in self._tensors.items()}
        if fitted is not None:
            content["parameters"] = dict(fitted.parameters)
        # SHA-256 over everything that decides a vector, in hexadecimal.
        self.weights = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @classmethod
    def load(cls, folder: str | Path) -> StaticModel:
        """Load a folder that `save` wrote."""
        folder = Path(folder)
        settings = FORM.read_settings(folder)
        tensors = FORM.read_arrays(folder)
        content_file = folder / _CONTENT[settings["kind"]]
        digest = settings["vocabulary"]
        tokenizer: FileTokenizer | PieceTokenizer
        try:
            content = content_file.read_bytes().decode()
            if settings["kind"] == "words":
                # Not splitlines, since a word may hold other line separators.
                tokenizer = FileTokenizer(content.split("\n")[:-1])
                is_unchanged = words_digest(tokenizer) == digest
            else:
                is_unchanged = hashlib.sha256(content.encode()).hexdigest() == settings["tokenizer"]
                tokenizer = PieceTokenizer(content, len(tensors["vectors"]), settings["unknown"])
            fitted = None
            if settings["method"] in FITTED:
                arrays = {name: tensors[name] for name in _FITTED}
                fitted = FittedWeights(**arrays, parameters=settings["parameters"])
            lexicon = Lexicon(str(folder), tokenizer, tensors["vectors"], digest)
            model = cls(lexicon, settings["method"], fitted, settings["provenance"])
        except (OSError, *MALFORMED) as error:
            raise FORM.altered(folder, str(error)) from error
        if not is_unchanged or model.weights != settings["weights"]:
            altered = folder / FORM.arrays if is_unchanged else content_file
            raise FORM.altered(altered, "another SHA-256 than static.json says")
        return model

    def save(self, folder: str | Path) -> None:
        """Write the encoder into a folder, which appears complete or not at all."""
        FORM.check_target(Path(folder))
        tokenizer = self.lexicon.tokenizer
        content = tokenizer.content.encode()
        pieces = tokenizer if isinstance(tokenizer, PieceTokenizer) else None
        settings = {
            "format": FORM.version,
            "method": self.method,
            "kind": tokenizer.kind,
            "parameters": dict(self.fitted.parameters) if self.fitted else {},
            "provenance": dict(self.provenance),
            "vocabulary": self.lexicon.digest,
            "tokenizer": hashlib.sha256(content).hexdigest() if pieces else None,
            "unknown": pieces.unknown if pieces else None,
            "weights": self.weights,
        }
        with whole_folder(Path(folder)) as new:
            FORM.write_arrays(new, self._tensors)
            (new / _CONTENT[tokenizer.kind]).write_bytes(content)
            FORM.write_settings(new, settings)

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[list[int]]:
        """Return the ids of each text's words, cut to `max_length` if it is set."""
        return [row[:max_length] for row in self.lexicon.tokenizer.ids(texts)]

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, stop) character offsets of each word of `tokenize`."""
        return self.tokenize_with_offsets([text])[1][0]

    def tokenize_with_offsets(
        self, texts: Sequence[str], *, query: bool = False
    ) -> tuple[list[list[int]], list[list[Span]]]:
        """Return the ids of whole texts, and their offsets."""
        return self.lexicon.tokenizer.ids_with_spans(texts)

    @property
    def word_dimensions(self) -> int:
        """Number of components of a word vector, before the method is applied."""
        return int(self.lexicon.vectors.shape[1])

    def piece_batches(self, pieces: Sequence[Sequence[int]]) -> Batches:
        """Yield the vectors of all words in one batch; zeros for unknown words."""
        vectors = self.lexicon.vectors
        lengths = np.array([len(ids) for ids in pieces], np.int64)
        ids = np.full((len(pieces), lengths.max(initial=0)), len(vectors), np.int64)
        ids[np.arange(ids.shape[1]) < lengths[:, None]] = np.fromiter(
            chain.from_iterable(pieces), np.int64
        )
        has_vector = ids < len(vectors)
        word_vectors = np.zeros((*ids.shape, self.word_dimensions), np.float32)
        word_vectors[has_vector] = vectors[ids[has_vector]]
        yield np.arange(len(pieces)), word_vectors

    def embed(self, pieces: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Return one vector per text for ids from `tokenize`, not normalized."""
        vectors = self.lexicon.vectors
        ids, counts = flatten(pieces, len(vectors))
        # A sum may overflow. The reader of the vectors refuses it.
        with np.errstate(over="ignore", invalid="ignore"):
            return sentence_vectors(self.method, vectors, ids, counts, self.fitted)


def _find_static(requested: EncoderSettings, download: bool) -> StaticModel:
    name = requested.model or DEFAULT_MODEL
    if is_folder_with(STATIC_FILE, name):
        static = StaticModel.load(name)
        if requested.static not in (None, static.method):
            raise ConfigError(
                f"static: {name} was fitted for {static.method}, but {requested.static} was asked "
                "for; leave static out, or fit another with `retriever train static`"
            )
        return static
    method = requested.static or "average"
    if method in FITTED:
        raise ConfigError(
            f"static: {method} has to be fitted on texts: `retriever train static CORPUS --vectors "
            f"{name} --method {method} --output FOLDER`, then name that folder with --model"
        )
    lexicon = find_lexicon(name, download)
    return StaticModel(lexicon, method, None, {"vectors": name})


def _load(requested: EncoderSettings, loading: LoadContext) -> tuple[EncoderSpec, StaticModel]:
    static = _find_static(requested, loading.download)
    lexicon = static.lexicon
    if requested.query_prompt is None and lexicon.query_prompt:
        requested = replace(requested, query_prompt=lexicon.query_prompt)
    if requested.passage_prompt is None and lexicon.passage_prompt:
        requested = replace(requested, passage_prompt=lexicon.passage_prompt)
    settings = plain_settings(
        requested,
        model=requested.model or DEFAULT_MODEL,
        static=static.method,
        max_length=requested.max_length or lexicon.window or WINDOW,
    )
    return EncoderSpec(settings, static.weights, static.dimensions), static


KIND = EncoderKind(
    load=_load, weights=lambda requested, download: _find_static(requested, download).weights
)
