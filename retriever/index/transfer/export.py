"""Write an index, or vectors of a corpus, to files that this and other programs read.

docs/reference/export-and-import.md describes them. Documents are in ascending order of ids,
passages in the order of the text; all of them belong to one commit. Memory does not grow with the
index.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

import numpy as np
from numpy.typing import NDArray

from indexes import Store, StoredDocument, View, open_store
from indexes.files import GrowingArray, storage_errors, whole_files
from retriever.documents.document import OUTLINE_NAME, Document, Fields
from retriever.documents.passages import passage_text
from retriever.encoders.computing import describe_unbounded, find_unbounded
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, ModelError, SourceError, StorageError
from retriever.search.opened import StoredSettings

if TYPE_CHECKING:
    from retriever.encoders.encoder import Encoder
    from retriever.index.indexing.run import Progress

VECTORS_FIELD = "vectors"
# Documents that are read together, and texts that are encoded together.
_BATCH = 512
_WINDOW = 8192


@dataclass(frozen=True, slots=True)
class Exported:
    """Counts of an export, and the files that it wrote, the requested one first."""

    documents: int
    passages: int
    files: tuple[Path, ...]


def export_jsonl(
    folder: str | Path | Store,
    output: Path | TextIO,
    *,
    vectors: bool = False,
    names: Fields = Fields(),  # noqa: B008
    progress: Callable[[int], object] | None = None,
) -> Exported:
    """Write the documents of an index as JSON Lines; `CorpusReader` reads them back.

    Args:
        folder: the index.
        output: a file, which appears complete or not at all, or an open stream of text.
        vectors: write the vectors of the passages too, with nine digits, which give back the same
            float32; `import_documents` reads them. The specification of the encoder goes beside a
            file.
        names: the fields that id, text and title are written into; `id`, `text` and `title`
            where None. A document without title has no such field, or null if the title's is named.
        progress: called with the number of documents written since the last call.

    Raises:
        ConfigError: a field of the metadata has the name of another, or `output` does not end in
            .jsonl.
        StorageError: the disk is full or cannot be written, or `output` is a folder.
        NotAnIndexError, FormatVersionError, DamagedIndexError
    """
    field_names = [getattr(names, field.name) or field.name for field in fields(names)]
    if len(set(field_names)) != len(field_names):
        raise ConfigError(
            f"two fields have one name among {', '.join(field_names)}; name each once"
        )
    with _pinned(folder) as (store, view):
        if not isinstance(output, Path):
            return _write_lines(view, _stream_writer(output), vectors, names, progress)
        check_output(output, ".jsonl")
        beside = (encoder_file(output),) if vectors else ()
        with whole_files(*beside, output) as new:
            if vectors:
                _write_encoder(store, view, new[0])
            with new[-1].open("w", encoding="utf-8") as file:
                written = _write_lines(view, file.write, vectors, names, progress)
        return Exported(written.documents, written.passages, (output, *beside))


def export_npy(
    folder: str | Path | Store, output: Path, *, progress: Callable[[int], object] | None = None
) -> Exported:
    """Write the vectors of an index as a NumPy array, with ids and encoder beside it.

    `output` ends in .npy; each file appears complete or not at all, this one last. The other
    arguments, and what is raised, are those of `export_jsonl`.
    """
    check_output(output, ".npy")
    ids_file = ids_file_of(output)
    documents = 0
    rows = 0
    with (
        _pinned(folder) as (store, view),
        whole_files(encoder_file(output), ids_file, output) as (new_encoder, new_ids, new),
    ):
        spec = _write_encoder(store, view, new_encoder)
        shape = (view.passage_count, spec.dimensions)
        with new.open("wb") as file, new_ids.open("w", encoding="utf-8") as ids:
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for batch in _batches(view):
                vectors = _vectors(view, batch)
                file.write(vectors.tobytes())
                for document in batch:
                    for _, start, stop in document.passages:
                        row = {"id": document.id, "start": start, "stop": stop}
                        ids.write(json.dumps(row, ensure_ascii=False) + "\n")
                documents += len(batch)
                rows += len(vectors)
                if progress is not None:
                    progress(len(batch))
        if rows != shape[0]:
            raise store.damaged(f"expected {shape[0]} passages, found {rows}")
    return Exported(documents, rows, (output, ids_file, encoder_file(output)))


def encode_to_file(
    documents: Iterable[Document],
    encoder: Encoder,
    output: Path,
    *,
    on_long: Literal["truncate", "error"],
    progress: Progress,
    queries: bool = False,
) -> tuple[int, int]:
    """Write vectors, and ids beside them; returns the numbers of texts and of those cut."""
    check_output(output, ".npy")
    ids_file = ids_file_of(output)
    rows = 0
    truncated = 0
    stream = iter(documents)
    with (
        whole_files(ids_file, output) as (new_ids, new),
        GrowingArray(new, np.dtype("<f4"), (encoder.spec.dimensions,)) as vectors,
        new_ids.open("w", encoding="utf-8") as ids,
    ):
        while window := list(islice(stream, _WINDOW)):
            texts = [passage_text(document, None) for document in window]
            pieces = encoder.tokenize(texts, query=queries)
            long = [i for i, row in enumerate(pieces) if len(row) > encoder.spec.max_length]
            if long and on_long == "error":
                raise SourceError(
                    f"document {window[long[0]].id!r}: longer than the encoder's window of "
                    f"{encoder.spec.max_length} tokens; use --on-long truncate"
                )
            cut = encoder.truncate([texts[i] for i in long], query=queries)
            for i, row in zip(long, cut, strict=True):
                pieces[i] = row
            progress.window(len(window), 0)
            encoded = encoder.encode_pieces(pieces, progress.encoded)
            row = find_unbounded(encoded)
            if row is not None:
                reason = describe_unbounded(encoded[row])
                raise ModelError(f"document {window[row].id!r}: {reason}")
            vectors.append(encoded)
            ids.writelines(
                json.dumps(document.id, ensure_ascii=False) + "\n" for document in window
            )
            rows += len(window)
            truncated += len(long)
    return rows, truncated


def encoder_file(path: Path) -> Path:
    """Return the file that specifies the encoder of the vectors in `path`."""
    return path.with_name(path.name.removesuffix(".gz")).with_suffix(".encoder.json")


def ids_file_of(path: Path) -> Path:
    """Return the file with the ids of the rows of the .npy file `path`."""
    return path.with_suffix(".ids.jsonl")


def check_output(output: Path, ending: str) -> None:
    """Refuse a name that cannot be written to, before anything is encoded."""
    if output.suffix != ending:
        raise ConfigError(f"{output}: expected a file name that ends in {ending}; change --output")
    if not output.parent.is_dir() or output.is_dir():
        raise StorageError(
            f"{output}: expected a file in a folder that exists; make the folder or change --output"
        )


@contextmanager
def _pinned(folder: str | Path | Store) -> Iterator[tuple[Store, View]]:
    store = open_store(folder)
    with closing(store.reader()) as reader, reader.view() as view:
        yield store, view


def _stream_writer(stream: TextIO) -> Callable[[str], object]:
    """Return a function that writes to a stream, whose errors name the stream."""
    name = Path(str(getattr(stream, "name", "output")))

    def write(text: str) -> None:
        with storage_errors(name):
            stream.write(text)

    return write


def _write_lines(
    view: View,
    write: Callable[[str], object],
    vectors: bool,
    names: Fields,
    progress: Callable[[int], object] | None,
) -> Exported:
    documents = 0
    passages = 0
    for batch in _batches(view):
        batch_vectors = iter(_vectors(view, batch) if vectors else ())
        for document in batch:
            line = json.dumps(_record(document, names, vectors), ensure_ascii=False)
            if vectors:
                line = f'{line[:-1]}, "{VECTORS_FIELD}": [{_passages(document, batch_vectors)}]}}'
            write(line + "\n")
            documents += 1
            passages += len(document.passages)
        if progress is not None:
            progress(len(batch))
    return Exported(documents, passages, ())


def _record(document: StoredDocument, names: Fields, vectors: bool) -> dict[str, object]:
    record: dict[str, object] = {names.id or "id": document.id}
    if document.title is not None or names.title is not None:
        record[names.title or "title"] = document.title
    record[names.text or "text"] = document.text
    # A document without title has no field of that name, and its metadata must not have one.
    reserved = {
        names.id or "id": "id: choose another with --id-field",
        names.title or "title": "title: choose another with --title-field",
        names.text or "text": "text: choose another with --text-field",
    }
    if document.outline:
        reserved[OUTLINE_NAME] = "outline: rename that field"
        record[OUTLINE_NAME] = json.loads(document.outline)
    if vectors:
        reserved[VECTORS_FIELD] = "vectors: leave --vectors out and export them as .npy"
    for name in document.metadata:
        if name in reserved:
            raise ConfigError(
                f"document {document.id!r}: its metadata has a field {name!r}, the name that the "
                f"export uses for the {reserved[name]}"
            )
    return {**record, **document.metadata}


def _passages(document: StoredDocument, vectors: Iterator[NDArray[np.float32]]) -> str:
    return ", ".join(
        f'{{"start": {start}, "stop": {stop}, '
        f'"vector": [{", ".join(map("%.9g".__mod__, vector.tolist()))}]}}'
        for (_, start, stop), vector in zip(
            document.passages, islice(vectors, len(document.passages)), strict=True
        )
    )


def _write_encoder(store: Store, view: View, file: Path) -> EncoderSpec:
    spec = StoredSettings.read(view, store).encoder
    file.write_text(json.dumps(spec.to_json(), ensure_ascii=False, indent=1) + "\n", "utf-8")
    return spec


def _batches(view: View) -> Iterator[list[StoredDocument]]:
    documents = view.documents()
    while batch := list(islice(documents, _BATCH)):
        yield batch


def _vectors(view: View, batch: list[StoredDocument]) -> NDArray[np.float32]:
    return view.vectors([passage for document in batch for passage, _, _ in document.passages])
