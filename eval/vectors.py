"""Vectors of texts under one or many encoders, cached, with one forward pass per text and model.

Encoders of one model that read the same word pieces of a text share its forward pass, whatever
their layers, fusion and pooling; so do meta-embeddings of the same sources.
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
from retriever.encoders.computing import BATCH_PIECES, token_batches
from retriever.encoders.registry import STATIC_FILE
from retriever.encoders.spec import probe_lists, same_vectors
from retriever.encoders.static import FITTED, fit_static
from retriever.errors import ConfigError, StorageError, require_several

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

# Texts that are encoded before their vectors are stored.
_BLOCK = 2048
_TABLE = """
    CREATE TABLE IF NOT EXISTS vectors (
        digest BLOB PRIMARY KEY, cut INTEGER NOT NULL, vector BLOB NOT NULL
    ) WITHOUT ROWID
"""
# The settings that turn layers into a vector: a sweep over layers decides them itself.
_DECIDED = ("static", "layers", "fusion", "pooling", "normalize", "dimensions", "head")


def distinct(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Each text once, and the row of each given one."""
    rows: dict[str, int] = {}
    places = [rows.setdefault(text, len(rows)) for text in texts]
    return list(rows), np.array(places, np.int64)


class TextVectors:
    """(texts, ...) float32 `vectors` of texts, which may repeat; `cut` texts exceed the window."""

    def __init__(self, texts: Sequence[str], vectors: Floats, cut: int = 0) -> None:
        self.vectors = vectors
        self.cut = cut
        self._row = {text: row for row, text in enumerate(texts)}

    def of(self, texts: Sequence[str]) -> Floats:
        """(texts, ...) float32, in the order of these texts; each of them must be known."""
        return self.vectors[np.array([self._row[text] for text in texts], np.int64)]


def embed(
    encoder: Encoder,
    texts: Sequence[str],
    folder: Path | None,
    *,
    query: bool = False,
    done: Done = ignore,
) -> TextVectors:
    """`embed_all` for one encoder."""
    (found,) = embed_all([encoder], texts, folder, query=query, done=done)
    return found


def embed_all(
    encoders: Sequence[Encoder],
    texts: Sequence[str],
    folder: Path | None,
    *,
    query: bool = False,
    done: Done = ignore,
) -> Iterator[TextVectors]:
    """The vectors of texts under one encoder after the other, all made before the first result."""
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
                    cut[number], stored = _stored(database, "cut, vector", text, query)
                    vectors[number] = np.frombuffer(stored, "<f4")
            yield TextVectors(texts, vectors[rows], int(cut[rows].sum()))


def _fill_cache(
    encoders: Sequence[Encoder], texts: Sequence[str], folder: Path, query: bool, done: Done
) -> None:
    """Encode distinct texts that the cache lacks, and store them block by block."""
    for group in _groups(encoders):
        lacking: list[set[int]] = []
        for encoder in group:
            with _open_vectors(folder, encoder) as database:
                stored = [_stored(database, "1", text, query) for text in texts]
            lacking.append({row for row, found in enumerate(stored) if found is None})
            done(len(texts) - len(lacking[-1]))
        wanted = sorted(set().union(*lacking))
        for start in range(0, len(wanted), _BLOCK):
            parts = []
            for encoder, missing in zip(group, lacking, strict=True):
                rows = [row for row in wanted[start : start + _BLOCK] if row in missing]
                parts.append(_Part(encoder, [texts[row] for row in rows], query))
            if len(parts) == 1:
                (part,) = parts
                part.vectors = part.encoder.encode_pieces(part.pieces, lambda texts, _: done(texts))
            else:
                _encode_together(parts, done)
            for part in parts:
                new = [
                    (_digest(text, query), int(cut), vector.astype("<f4").tobytes())
                    for text, vector, cut in zip(part.texts, part.vectors, part.cut, strict=True)
                ]
                with _open_vectors(folder, part.encoder) as database, database:
                    database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", new)


def _stored(database: sqlite3.Connection, columns: str, text: str, query: bool) -> Any:
    statement = f"SELECT {columns} FROM vectors WHERE digest = ?"  # noqa: S608
    return database.execute(statement, (_digest(text, query),)).fetchone()


@contextmanager
def _open_vectors(folder: Path, encoder: Encoder) -> Iterator[sqlite3.Connection]:
    """The file of an encoder; that of a URL is emptied if another model answers under it."""
    spec = encoder.spec
    dtype = None if spec.settings.dtype == "float32" else spec.settings.dtype
    path = folder / f"{spec.fingerprint}{f'-{dtype}' if dtype else ''}.sqlite"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=60)) as database:
            database.execute(_TABLE)
            if probes := probe_lists(encoder):
                _expect(database, probes)
            yield database
    except (OSError, sqlite3.DatabaseError, ValueError) as error:
        raise StorageError(
            f"{path}: the cache of vectors cannot be used ({' '.join(str(error).split())}); "
            "remove the file, set RETRIEVER_CACHE to a writable folder, or use --set cache=no"
        ) from error


def _expect(database: sqlite3.Connection, probes: list[list[float]]) -> None:
    """Forget all vectors if they were made by an encoder with other probe vectors."""
    with database:
        database.execute("CREATE TABLE IF NOT EXISTS probes (vectors TEXT NOT NULL)")
        found = database.execute("SELECT vectors FROM probes").fetchone()
        expected = np.array(probes, np.float32)
        if found is None or not same_vectors(json.loads(found[0]), expected):
            database.execute("DELETE FROM vectors")
            database.execute("DELETE FROM probes")
            database.execute("INSERT INTO probes VALUES (?)", (json.dumps(probes),))


def _digest(text: str, query: bool) -> bytes:
    role = b"query\n" if query else b"passage\n"
    return hashlib.sha256(role + text.encode()).digest()


def _groups(encoders: Sequence[Encoder]) -> list[list[Encoder]]:
    """Encoders that read the same of every text; a static encoder is a group by itself."""
    groups: dict[tuple[object, ...], list[Encoder]] = {}
    for place, encoder in enumerate(encoders):
        spec = encoder.spec
        key: tuple[object, ...] = spec.weights, spec.meaning("backend"), spec.meaning("dtype")
        if spec.settings.static is not None:
            key = (place,)
        else:
            with suppress(ConfigError):
                parts = encoder.meta_parts()
                key = parts.level, *(one.fingerprint for one in parts.sources)
        groups.setdefault(key, []).append(encoder)
    return list(groups.values())


class _Part:
    """Texts of a block under one encoder: pieces within the window, which are cut, and vectors."""

    def __init__(self, encoder: Encoder, texts: list[str], query: bool) -> None:
        self.encoder = encoder
        self.texts = texts
        self.pieces = encoder.tokenize(texts, query=query)
        self.cut = np.array([len(ids) > encoder.spec.max_length for ids in self.pieces], np.bool_)
        long = np.flatnonzero(self.cut)
        shorter = encoder.truncate([texts[int(row)] for row in long], query=query)
        for row, ids in zip(long, shorter, strict=True):
            self.pieces[row] = ids
        self.vectors = np.zeros((len(texts), encoder.spec.dimensions), np.float32)


def _encode_together(parts: Sequence[_Part], done: Done) -> None:
    """Fill the vectors; word pieces that the same encoders need are encoded together."""
    uses: dict[Any, list[tuple[int, int]]] = {}
    for place, part in enumerate(parts):
        for row, ids in enumerate(part.pieces):
            key = tuple(ids) if isinstance(ids, list) else ids
            uses.setdefault(key, []).append((place, row))
    by_encoders: dict[frozenset[int], list[Any]] = {}
    for ids, users in uses.items():
        by_encoders.setdefault(frozenset(place for place, _ in users), []).append(ids)
    limit = BATCH_PIECES[parts[0].encoder.spec.settings.number_format]
    for places, listed in by_encoders.items():
        # A text without a known word has no pieces and a zero vector.
        for batch in token_batches([max(len(ids), 1) for ids in listed], limit):
            chosen = [listed[number] for number in batch]
            for place in sorted(places):
                # The same batch for each encoder, so that a shared backbone runs once.
                found = parts[place].encoder.encode_pieces(chosen)
                for ids, vector in zip(chosen, found, strict=True):
                    rows = [row for user, row in uses[ids] if user == place]
                    parts[place].vectors[rows] = vector
                    done(len(rows))


def named_encoders(
    encoders: Sequence[str], lists: Sequence[str] = (), model: str | None = None
) -> tuple[str, ...]:
    """The text forms of encoders, those of `LISTS` first.

    The lists, and forms without a model (``::lc:0,6``), are of `model`; None is the bundled one.

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
    listed = [f"::{setting}" for name in lists for setting in LISTS[name]]
    forms = [over_model(form, model) for form in (*listed, *encoders)]
    if not forms:
        raise ConfigError(
            f"encoder: expected at least one, found none; name one with --encoder, such as {model}"
        )
    seen: dict[EncoderSettings, str] = {}
    for form in forms:
        asked = parse_encoder(form)
        if asked in seen:
            raise ConfigError(f"encoder: {form} is {seen[asked]} again; name each once")
        seen[asked] = form
    return tuple(forms)


class SentenceEncoders:
    """Encoders, loaded once for all sets of texts, except for those that are fitted on each set."""

    def __init__(self, forms: Sequence[str], loading: Loading) -> None:
        self.names = tuple(forms)
        self._loading = loading
        ready = [form for form in forms if not _is_fitted(form)]
        self._ready = dict(zip(ready, loading.load_together(ready), strict=True))

    def vectors(
        self, texts: Sequence[str], fit_on: Sequence[str], done: Done = ignore
    ) -> Iterator[TextVectors]:
        """`embed_all` in the order of `names`, with some encoders fitted on the texts `fit_on`."""
        encoders = [
            self._ready[form] if form in self._ready else self._fit(form, fit_on)
            for form in self.names
        ]
        return embed_all(encoders, texts, self._loading.cache, done=done)

    def _fit(self, form: str, texts: Sequence[str]) -> Encoder:
        asked = parse_encoder(form)
        assert asked.static is not None
        model = fit_static(
            asked.model or DEFAULT_MODEL, asked.static, texts, download=self._loading.download
        )
        with TemporaryDirectory() as folder:
            saved = Path(folder) / "fitted"
            model.save(saved)
            fitted = str(replace(asked, model=str(saved), static=None))
            (encoder,) = self._loading.load_together([fitted])
        return encoder


def _is_fitted(form: str) -> bool:
    # A folder of a fitted encoder is used as it is; a model or a file of word vectors is not.
    asked = parse_encoder(form)
    return asked.static in FITTED and not is_folder_with(STATIC_FILE, asked.model or DEFAULT_MODEL)


def fitted_remark(forms: Sequence[str], texts: str) -> list[str]:
    """A remark on the encoders that are fitted on `texts` of each set; none if there are none."""
    fitted = [form for form in forms if _is_fitted(form)]
    return [f"fitted on each set, on {texts}: {', '.join(fitted)}"] if fitted else []


def layer_form(form: str, pooling: Pooling) -> str:
    """The form of an encoder that concatenates every layer as it is; refuses what this decides."""
    asked = parse_encoder(form)
    for name in _DECIDED:
        value = getattr(asked, name)
        if value is not None and (name != "head" or value):
            raise ConfigError(
                f"{form}: found {name}={value}, but every layer of a transformer is scored as it "
                f"is; leave {name} out"
            )
    return str(
        replace(asked, layers="all", fusion="concat", pooling=pooling, head=False, normalize=False)
    )


def split_layers(vectors: Floats, depth: int) -> Floats:
    """(texts, hidden states, width), a view of the vectors of `layer_form`'s encoder."""
    return vectors.reshape(len(vectors), depth + 1, -1)


class LayerEncoders:
    """Every hidden state of models, with several poolings; forms as `layer_form` takes them."""

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
        layered = [layer_form(form, pooling) for form in forms for pooling in poolings]
        self._encoders = loading.load_together(layered)

    def depth(self, name: str) -> int:
        """Transformer layers of a model; it has one more hidden state."""
        return self._encoders[self.names.index(name) * len(self.poolings)].depth

    def vectors(self, texts: Sequence[str], done: Done = ignore) -> Iterator[TextVectors]:
        """(texts, hidden states, width) of texts, all poolings of one model after the other."""
        found = embed_all(self._encoders, texts, self._cache, done=done)
        for encoder, one in zip(self._encoders, found, strict=True):
            yield TextVectors(texts, split_layers(one.vectors, encoder.depth), one.cut)
