"""Documents with ready vectors into an index: nothing is encoded."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from indexes import FaissVectors, Stage, Store, StructureSettings, no_progress, open_store
from retriever.documents import Fields
from retriever.documents.analyzer import AnalyzerSettings
from retriever.documents.reader import CorpusReader
from retriever.encoders.encoder import ModelChoice
from retriever.encoders.registry import require_asked
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, EncoderMismatchError, SourceError
from retriever.index import Index
from retriever.index.add import CommitSettings, IndexingReport
from retriever.index.export import encoder_file
from retriever.index.opened import IndexSettings, initial_settings
from retriever.index.other_stores import Metric, open_collection
from retriever.index.ready import ReadyDocument
from retriever.index.shards import PLAN_FILE, Plan, is_shards, read_shards
from retriever.index.vector_files import open_matrix, read_matrix, read_records

_METRIC_NAMES: dict[Metric, str] = {
    "cosine": "the cosine",
    "ip": "the inner product",
    "l2": "the Euclidean distance",
}


def import_documents(
    folder: str | Path | Store,
    source: str | Path,
    model: str = "",
    *,
    vectors: str | Path | None = None,
    fields: Fields = Fields(),  # noqa: B008
    vector_field: str = "vector",
    device: str | None = None,
    download: bool = False,
    analyzer: AnalyzerSettings | None = None,
    structures: StructureSettings | None = None,
    commit: CommitSettings | None = None,
    progress: Callable[[int], object] | None = None,
    stage: Stage = no_progress,
    report: IndexingReport | None = None,
    compact: bool = True,
    shards: Iterable[int] | None = None,
) -> IndexingReport:
    """Put documents and their ready vectors into an index, which is created if there is none.

    A document whose id the index holds is replaced; one whose title and text are the same keeps
    the vectors that it has. Where the encoder gives vectors of length 1, others are brought to
    that length and counted; a vector of zeros stays. A warning says if a store ranks by another
    metric, and how many documents without text and title were skipped.

    Args:
        folder: the index.
        source: JSON Lines with vectors, those of passages in ``vectors`` as `export_jsonl` writes
            them or one in `vector_field`; ``chroma:DIR`` or ``lancedb:DIR``, with ``/NAME`` of one
            of several collections or tables; a folder of `encode_shards`; or, with `vectors`, what
            `CorpusReader` reads.
        model: the encoder that the vectors come from, in its text form. Where the file that an
            export puts beside the vectors exists, it says what is not given here.
        vectors: a NumPy file, or an index that `faiss.write_index` wrote, with the vectors in the
            order of the documents.
        fields: which field holds what.
        vector_field: the field of one vector for the whole document.
        device: as of `Index.create`, as the next three.
        download: of a hub id that is not in the cache.
        analyzer: of the BM25 side.
        structures: how large segments are searched.
        commit: as of `Index.add`, as the next three.
        stage: receives the progress of a search structure that a merge builds.
        report: counts are added to it.
        compact: merge at the end.
        progress: called with the number of documents read since the last call.
        shards: which shards of a folder, counted from 0; None for all. Where the store takes
            several writers, several imports of different shards can run at once.

    Raises:
        ConfigError: no encoder is named; what `Index.create` raises.
        EncoderMismatchError: the vectors, the index and `model` are not of one encoder.
        SourceError: a record, a vector or a file cannot be used; earlier commits stand, and no
            index is created where the first record is bad.
        IndexLockedError, StorageError
    """
    if vectors is None and fields.types:
        raise ConfigError(
            f"{source}: types are for columns of CSV and TSV, which come with vectors"
        )
    vectors = None if vectors is None else Path(vectors)
    asked, place = ModelChoice(model, device, download), open_store(folder)
    if vectors is None and is_shards(Path(source)):
        return _import_shards(
            place,
            Path(source),
            shards,
            asked,
            analyzer,
            structures,
            progress,
            report=report,
            commit=commit,
            stage=stage,
            compact=compact,
        )
    if shards is not None:
        raise ConfigError(f"{source}: holds no shards to choose from; leave the shards out")
    if vectors is not None and str(source) == "-":
        raise SourceError("stdin: expected a file, since it is read twice; write it into one")
    corpus = None if vectors is None else CorpusReader([source], fields)
    store = re.match(r"(chroma|lancedb):(.+)", str(source)) if vectors is None else None
    if store is None and (vectors is not None or str(source) != "-"):
        _require_file(vectors or Path(source))
    made_by = encoder_file(vectors or Path(source))
    choice, spec = _named_encoder(asked, made_by, vectors or source)
    encoder = None
    if place.exists():
        with Index.create(
            place, choice.encoder, download=download, analyzer=analyzer, structures=structures
        ) as index:
            own = index.encoder_spec
    else:
        encoder = choice.load()
        own = encoder.spec
    if spec is not None and spec.fingerprint != own.fingerprint:
        raise EncoderMismatchError(
            f"{made_by}: the vectors are of {spec} ({spec.fingerprint}), expected those of the "
            f"index in {place}, {own} ({own.fingerprint}); import them into another index"
        )
    metric: Metric | None = None
    if store is not None:
        ready, metric = open_collection(store[1], store[2], own, fields, vector_field)
    elif vectors is None or corpus is None:
        ready = read_records(source, own, fields, vector_field)
    else:
        matrix = open_matrix(vectors, own)
        ready = read_matrix(corpus, vectors, matrix, own)
        if isinstance(matrix, FaissVectors):
            metric = matrix.metric
            if not matrix.exact:
                warnings.warn(
                    f"{vectors}: holds compressed vectors, so scores are approximate; name a .npy "
                    "file of the original vectors for exact ones",
                    stacklevel=2,
                )
    # Read before an index is created.
    first = list(islice(ready, 1))
    with Index.create(place, encoder=encoder, analyzer=analyzer, structures=structures) as index:
        documents = _counted(chain(first, ready), progress)
        report = index.add(
            documents, made_by=own, commit=commit, stage=stage, report=report, compact=compact
        )
    if metric is not None:
        _warn_of_metric(str(source), metric, bool(own.meaning("normalize")), report.scaled)
    if corpus is not None:
        for line in corpus.metadata_warnings():
            warnings.warn(line, stacklevel=2)
        if corpus.empty:
            report.count_empty(corpus.empty, corpus.empty_at)
            warnings.warn(report.empty_note, stacklevel=2)
    return report


def _warn_of_metric(source: str, metric: Metric, normalized: bool, scaled: int) -> None:
    """Say it if a dense search ranks otherwise than the store did."""
    # On vectors of length 1 all three metrics rank alike.
    if metric == ("cosine" if normalized else "ip") or (normalized and not scaled):
        return
    ours = _METRIC_NAMES["cosine" if normalized else "ip"]
    remedy = {
        "ip": "; for the same order, name the encoder with ::normalize=no",
        "cosine": "; for the same order, name the encoder without normalize=no",
        "l2": "",
    }[metric]
    lengths = f"{scaled:,} vectors are not of length 1, " if normalized else ""
    warnings.warn(
        f"{source}: {lengths}the source ranks by {_METRIC_NAMES[metric]}, a dense search here by "
        f"{ours}, so the order can differ{remedy}",
        stacklevel=3,
    )


def _import_shards(
    place: Store,
    folder: Path,
    numbers: Iterable[int] | None,
    asked: ModelChoice,
    analyzer: AnalyzerSettings | None,
    structures: StructureSettings | None,
    progress: Callable[[int], object] | None,
    **options: Any,
) -> IndexingReport:
    """Add the documents of shards; no model is loaded, unless the user names one to compare."""
    plan = Plan.read(folder)
    if asked.encoder:
        _agreed(asked, plan.encoder, folder / PLAN_FILE)
    ready = read_shards(folder, numbers)
    # Read before an index is created.
    first = list(islice(ready, 1))
    if not place.exists():
        own = IndexSettings(analyzer or plan.analyzer, plan.passages, structures)
        place.create(initial_settings((plan.encoder, plan.probes), own))
    with Index.create(
        place, analyzer=analyzer, passages=plan.passages, structures=structures
    ) as index:
        return index.add(_counted(chain(first, ready), progress), made_by=plan.encoder, **options)


def _counted(
    ready: Iterable[ReadyDocument], progress: Callable[[int], object] | None
) -> Iterator[ReadyDocument]:
    for one in ready:
        yield one
        if progress is not None:
            progress(1)


def _require_file(path: Path) -> None:
    if path.is_dir():
        raise SourceError(f"{path}: expected a file of vectors, found a folder; name the file")
    if not path.exists():
        raise SourceError(f"{path}: no such file; check the path")


def _named_encoder(
    choice: ModelChoice, made_by: Path, source: str | Path
) -> tuple[ModelChoice, EncoderSpec | None]:
    """The encoder to make or open the index with, and the one that the export names."""
    if not made_by.is_file():
        if choice.settings.model is None:
            raise ConfigError(
                f"{source}: the encoder that the vectors come from is not known, since there is "
                f"no {made_by.name} beside them; name it with --model"
            )
        return choice, None
    try:
        spec = EncoderSpec.from_json(json.loads(made_by.read_text("utf-8")))
    except (ConfigError, AttributeError, TypeError, ValueError) as error:
        raise SourceError(
            f"{made_by}: expected the specification of an encoder, as `retriever export` writes "
            f"it ({' '.join(str(error).split())}); export again, or remove it and use --model"
        ) from error
    return _agreed(choice, spec, made_by), spec


def _agreed(choice: ModelChoice, spec: EncoderSpec, made_by: Path) -> ModelChoice:
    """The encoder that made the vectors, if it is the one that the user names."""
    model = choice.settings.model or spec.model
    require_asked(model, choice.settings.model)
    try:
        replace(choice, encoder=str(replace(choice.settings, model=model))).check(spec, made_by)
    except EncoderMismatchError as error:
        raise EncoderMismatchError(
            f"{made_by}: the vectors are of {spec} with weights {spec.weights[:12]}, but "
            f"{choice.encoder or 'the model of that name'} is another encoder; name the one that "
            "made them with --model"
        ) from error
    return replace(choice, encoder=str(replace(spec.settings, model=model)))
