"""Vectors of texts under one or many encoders, cached, with one forward pass per text and model.

Encoders of one model that read the same word pieces share the forward pass of a text, even if
their layers, fusion and pooling differ. Meta-embeddings of the same sources share it too.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from eval.progress import Done, ignore
from eval.settings import Loading
from retriever.encoders import (
    DEFAULT_MODEL,
    Encoder,
    EncoderSettings,
    Pooling,
    is_folder_with,
    over_model,
    parse_encoder,
)
from retriever.encoders.computing import (
    BATCH_PIECES,
    describe_unbounded,
    find_unbounded,
    token_batches,
)
from retriever.encoders.encoder import probe_lists
from retriever.encoders.registry import STATIC_FILE
from retriever.encoders.spec import same_vectors
from retriever.encoders.static import FITTED, fit_static
from retriever.errors import ConfigError, ModelError, StorageError, require_several

Floats = NDArray[np.float32]

LISTS: Mapping[str, tuple[str, ...]] = {
    "paper": (
        "last",
        "last::pooling=cls",
        "last::pooling=max",
        "last4",
        "layers=all",
        "top-bottom",
        "sbert-wk",
        "sbert-wk::wk-preset=released",
        "lc:0,-1",
        "static=sif",
        "static=usif",
        "static=p-mean",
        "static=average",
    )
}
"""Name of a list of encoders to their settings, all over one model."""

# Number of texts that are encoded before their vectors are stored.
_BLOCK_TEXTS = 2048
_CREATE_TABLE = """
    CREATE TABLE IF NOT EXISTS vectors (
        digest BLOB PRIMARY KEY, cut INTEGER NOT NULL, vector BLOB NOT NULL
    ) WITHOUT ROWID
"""
# Settings that turn layers into a vector. A sweep over layers sets them itself.
_FIXED_SETTINGS = ("static", "layers", "fusion", "pooling", "normalize", "dimensions", "head")


def distinct(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Return each text once, and (texts,) the row of each."""
    rows: dict[str, int] = {}
    positions = [rows.setdefault(text, len(rows)) for text in texts]
    return list(rows), np.array(positions, np.int64)


class TextVectors:
    """(texts, ...) float32 `vectors` of texts, which may repeat; `cut` texts exceed the window."""

    def __init__(self, texts: Sequence[str], vectors: Floats, cut: int = 0) -> None:
        self.vectors = vectors
        self.cut = cut
        self._row = {text: row for row, text in enumerate(texts)}

    def of(self, texts: Sequence[str]) -> Floats:
        """Return (texts, ...) float32 vectors of some of the texts, in their order."""
        return self.vectors[np.array([self._row[text] for text in texts], np.int64)]


def embed(
    encoder: Encoder,
    texts: Sequence[str],
    folder: Path | None,
    *,
    query: bool = False,
    done: Done = ignore,
) -> TextVectors:
    """Return the vectors of texts under one encoder; see `embed_all`."""
    (vectors,) = embed_all([encoder], texts, folder, query=query, done=done)
    return vectors


def embed_all(
    encoders: Sequence[Encoder],
    texts: Sequence[str],
    folder: Path | None,
    *,
    query: bool = False,
    done: Done = ignore,
) -> Iterator[TextVectors]:
    """Yield the vectors of texts under each encoder; all are computed before the first result."""
    unique, rows = distinct(texts)
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(TemporaryDirectory()))
        _fill_cache(encoders, unique, folder, query, done)
        for encoder in encoders:
            vectors = np.empty((len(unique), encoder.spec.dimensions), np.float32)
            cut = np.empty(len(unique), np.bool_)
            with _open_vectors(folder, encoder) as database:
                for number, text in enumerate(unique):
                    cut[number], vector_bytes = _read_entry(database, "cut, vector", text, query)
                    vectors[number] = np.frombuffer(vector_bytes, "<f4")
            yield TextVectors(texts, vectors[rows], int(cut[rows].sum()))


def _fill_cache(
    encoders: Sequence[Encoder], texts: Sequence[str], folder: Path, query: bool, done: Done
) -> None:
    """Encode distinct texts that the cache lacks, and store their vectors block by block."""
    for group in _group_encoders(encoders):
        missing_by_encoder: list[set[int]] = []
        for encoder in group:
            with _open_vectors(folder, encoder) as database:
                stored = [_read_entry(database, "1", text, query) for text in texts]
            missing_by_encoder.append({row for row, entry in enumerate(stored) if entry is None})
            done(len(texts) - len(missing_by_encoder[-1]))
        missing_rows = sorted(set().union(*missing_by_encoder))
        for start in range(0, len(missing_rows), _BLOCK_TEXTS):
            blocks = []
            for encoder, missing in zip(group, missing_by_encoder, strict=True):
                rows = [row for row in missing_rows[start : start + _BLOCK_TEXTS] if row in missing]
                blocks.append(_EncodedBlock(encoder, [texts[row] for row in rows], query))
            if len(blocks) == 1:
                (block,) = blocks
                block.vectors = block.encoder.encode_pieces(
                    block.pieces, lambda texts, _: done(texts)
                )
            else:
                _encode_together(blocks, done)
            for block in blocks:
                row = find_unbounded(block.vectors)
                if row is not None:
                    reason = describe_unbounded(block.vectors[row])
                    raise ModelError(f"{block.encoder.spec}: {reason}")
                entries = [
                    (_digest(text, query), int(cut), vector.astype("<f4").tobytes())
                    for text, vector, cut in zip(block.texts, block.vectors, block.cut, strict=True)
                ]
                with _open_vectors(folder, block.encoder) as database, database:
                    database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", entries)


def _read_entry(database: sqlite3.Connection, columns: str, text: str, query: bool) -> Any:
    statement = f"SELECT {columns} FROM vectors WHERE digest = ?"  # noqa: S608
    return database.execute(statement, (_digest(text, query),)).fetchone()


@contextmanager
def _open_vectors(folder: Path, encoder: Encoder) -> Iterator[sqlite3.Connection]:
    """Open the cache of an encoder; empty it if the model behind a URL has changed."""
    spec = encoder.spec
    dtype = None if spec.settings.dtype == "float32" else spec.settings.dtype
    path = folder / f"{spec.fingerprint}{f'-{dtype}' if dtype else ''}.sqlite"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=60)) as database:
            database.execute(_CREATE_TABLE)
            if probes := probe_lists(encoder):
                _clear_if_probes_differ(database, probes)
            yield database
    except (OSError, sqlite3.DatabaseError, ValueError) as error:
        raise StorageError(
            f"{path}: the cache of vectors cannot be used ({' '.join(str(error).split())}); "
            "remove the file, set RETRIEVER_CACHE to a writable folder, or use --set cache=no"
        ) from error


def _clear_if_probes_differ(database: sqlite3.Connection, probes: list[list[float]]) -> None:
    """Delete all vectors if they were made by an encoder with other probe vectors."""
    with database:
        database.execute("CREATE TABLE IF NOT EXISTS probes (vectors TEXT NOT NULL)")
        stored = database.execute("SELECT vectors FROM probes").fetchone()
        expected = np.array(probes, np.float32)
        if stored is None or not same_vectors(json.loads(stored[0]), expected):
            database.execute("DELETE FROM vectors")
            database.execute("DELETE FROM probes")
            database.execute("INSERT INTO probes VALUES (?)", (json.dumps(probes),))


def _digest(text: str, query: bool) -> bytes:
    role = b"query\n" if query else b"passage\n"
    return hashlib.sha256(role + text.encode()).digest()


def _group_encoders(encoders: Sequence[Encoder]) -> list[list[Encoder]]:
    """Group encoders that read the same pieces of every text; a static encoder is alone."""
    groups: dict[tuple[object, ...], list[Encoder]] = {}
    for position, encoder in enumerate(encoders):
        spec = encoder.spec
        key: tuple[object, ...] = (
            spec.weights,
            spec.effective_value("backend"),
            spec.effective_value("dtype"),
        )
        if spec.settings.static is not None:
            key = (position,)
        else:
            with suppress(ConfigError):
                parts = encoder.meta_parts()
                key = parts.level, *(source.fingerprint for source in parts.sources)
        groups.setdefault(key, []).append(encoder)
    return list(groups.values())


class _EncodedBlock:
    """Texts of a block under one encoder: word pieces within the window, and vectors.

    `cut` tells which texts exceed the window.
    """

    def __init__(self, encoder: Encoder, texts: list[str], query: bool) -> None:
        self.encoder = encoder
        self.texts = texts
        self.pieces = encoder.tokenize(texts, query=query)
        self.cut = np.array([len(ids) > encoder.spec.max_length for ids in self.pieces], np.bool_)
        long_rows = np.flatnonzero(self.cut)
        truncated_pieces = encoder.truncate([texts[int(row)] for row in long_rows], query=query)
        for row, ids in zip(long_rows, truncated_pieces, strict=True):
            self.pieces[row] = ids
        self.vectors = np.zeros((len(texts), encoder.spec.dimensions), np.float32)


def _encode_together(blocks: Sequence[_EncodedBlock], done: Done) -> None:
    """Fill `vectors` of blocks; word pieces that the same encoders need are encoded together."""
    uses_of_pieces: dict[Any, list[tuple[int, int]]] = {}
    for position, block in enumerate(blocks):
        for row, ids in enumerate(block.pieces):
            key = tuple(ids) if isinstance(ids, list) else ids
            uses_of_pieces.setdefault(key, []).append((position, row))
    pieces_of_encoders: dict[frozenset[int], list[Any]] = {}
    for ids, users in uses_of_pieces.items():
        pieces_of_encoders.setdefault(frozenset(position for position, _ in users), []).append(ids)
    limit = BATCH_PIECES[blocks[0].encoder.spec.settings.number_format]
    for positions, sequences in pieces_of_encoders.items():
        # A text without a known word has no pieces and a zero vector.
        for batch in token_batches([max(len(ids), 1) for ids in sequences], limit):
            batch_pieces = [sequences[number] for number in batch]
            for position in sorted(positions):
                # The same batch for each encoder, so that a shared backbone runs once.
                vectors = blocks[position].encoder.encode_pieces(batch_pieces)
                for ids, vector in zip(batch_pieces, vectors, strict=True):
                    rows = [
                        row
                        for other_position, row in uses_of_pieces[ids]
                        if other_position == position
                    ]
                    blocks[position].vectors[rows] = vector
                    done(len(rows))


def named_encoders(
    encoders: Sequence[str], lists: Sequence[str] = (), model: str | None = None
) -> tuple[str, ...]:
    """Return the text forms of encoders, those of `LISTS` first.

    Lists, and forms without a model (``::lc:0,6``), get `model`; None is the bundled model.

    Raises:
        ConfigError: a list or setting is unknown, an encoder is named twice, or there is none.
        TypeError: one string instead of several.
    """
    require_several("encoders", encoders)
    require_several("lists", lists)
    for name in lists:
        if name not in LISTS:
            raise ConfigError(f"encoders: expected {', '.join(LISTS)}, found {name!r}")
    model = model or DEFAULT_MODEL
    list_forms = [f"::{setting}" for name in lists for setting in LISTS[name]]
    forms = [over_model(form, model) for form in (*list_forms, *encoders)]
    if not forms:
        raise ConfigError(
            f"encoder: expected at least one, found none; name one with --encoder, such as {model}"
        )
    form_of_settings: dict[EncoderSettings, str] = {}
    for form in forms:
        settings = parse_encoder(form)
        if settings in form_of_settings:
            raise ConfigError(
                f"encoder: {form} is {form_of_settings[settings]} again; name each once"
            )
        form_of_settings[settings] = form
    return tuple(forms)


class SentenceEncoders:
    """Encoders of several sets of texts: loaded once, or fitted on each set."""

    def __init__(self, forms: Sequence[str], loading: Loading) -> None:
        self.names = tuple(forms)
        self._loading = loading
        unfitted_forms = [form for form in forms if not _is_fitted(form)]
        self._loaded_encoders = dict(
            zip(unfitted_forms, loading.load_together(unfitted_forms), strict=True)
        )

    def vectors(
        self, texts: Sequence[str], fit_on: Sequence[str], done: Done = ignore
    ) -> Iterator[TextVectors]:
        """Yield vectors in the order of `names`; some encoders are fitted on the texts `fit_on`."""
        encoders = [
            self._loaded_encoders[form]
            if form in self._loaded_encoders
            else self._fit(form, fit_on)
            for form in self.names
        ]
        return embed_all(encoders, texts, self._loading.cache, done=done)

    def _fit(self, form: str, texts: Sequence[str]) -> Encoder:
        settings = parse_encoder(form)
        assert settings.static is not None
        model = fit_static(
            settings.model or DEFAULT_MODEL, settings.static, texts, download=self._loading.download
        )
        with TemporaryDirectory() as folder:
            model_folder = Path(folder) / "fitted"
            model.save(model_folder)
            saved_form = str(replace(settings, model=str(model_folder), static=None))
            (encoder,) = self._loading.load_together([saved_form])
        return encoder


def _is_fitted(form: str) -> bool:
    # A folder that holds a fitted encoder needs no fit; a model or word vectors do.
    settings = parse_encoder(form)
    return settings.static in FITTED and not is_folder_with(
        STATIC_FILE, settings.model or DEFAULT_MODEL
    )


def fitted_remark(forms: Sequence[str], texts: str) -> list[str]:
    """Return a remark on the encoders that are fitted on `texts` of each set, if there are any."""
    fitted = [form for form in forms if _is_fitted(form)]
    return [f"fitted on each set, on {texts}: {', '.join(fitted)}"] if fitted else []


def layer_form(form: str, pooling: Pooling) -> str:
    """Return the form of an encoder that concatenates all layers; refuse settings it fixes."""
    settings = parse_encoder(form)
    for name in _FIXED_SETTINGS:
        value = getattr(settings, name)
        if value is not None and (name != "head" or value):
            raise ConfigError(
                f"{form}: found {name}={value}, but every layer of a transformer is scored as it "
                f"is; leave {name} out"
            )
    return str(
        replace(
            settings, layers="all", fusion="concat", pooling=pooling, head=False, normalize=False
        )
    )


def split_layers(vectors: Floats, depth: int) -> Floats:
    """Return vectors of the encoder of `layer_form` as a (texts, hidden states, width) view."""
    return vectors.reshape(len(vectors), depth + 1, -1)


class LayerEncoders:
    """All hidden states of models, with several poolings; forms are those of `layer_form`."""

    def __init__(self, forms: Sequence[str], poolings: Sequence[Pooling], loading: Loading) -> None:
        require_several("poolings", poolings)
        if not poolings or len({*poolings} & {*get_args(Pooling)}) < len(poolings):
            raise ConfigError(
                f"poolings: expected some of {', '.join(get_args(Pooling))}, each once, found "
                f"{', '.join(poolings) or 'none'}"
            )
        self.names = tuple(forms)
        self.poolings = tuple(poolings)
        self._cache = loading.cache
        layer_forms = [layer_form(form, pooling) for form in forms for pooling in poolings]
        self._encoders = loading.load_together(layer_forms)

    def depth(self, name: str) -> int:
        """Return the number of transformer layers of a model; it has one more hidden state."""
        return self._encoders[self.names.index(name) * len(self.poolings)].depth

    def vectors(self, texts: Sequence[str], done: Done = ignore) -> Iterator[TextVectors]:
        """Yield (texts, hidden states, width) vectors, model after model, pooling after pooling."""
        vectors_by_encoder = embed_all(self._encoders, texts, self._cache, done=done)
        for encoder, text_vectors in zip(self._encoders, vectors_by_encoder, strict=True):
            yield TextVectors(
                texts, split_layers(text_vectors.vectors, encoder.depth), text_vectors.cut
            )
