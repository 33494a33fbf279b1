"""Fitting of meta-embeddings on a corpus or on scored pairs."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from indexes.files import storage_errors
from retriever.encoders.encoder import Encoder
from retriever.encoders.meta.attention import (
    History,
    MetaEpoch,
    ScoredBatch,
    TrainingBatch,
    fit_attention,
)
from retriever.encoders.meta.linear import (
    Projection,
    average,
    concatenation,
    gcca,
    svd,
)
from retriever.encoders.meta.model import FORM, MetaModel, MetaParts
from retriever.encoders.meta.settings import (
    SAMPLE,
    MetaSettings,
    Method,
)
from retriever.encoders.meta.sources import MetaSource, MetaSources
from retriever.encoders.meta.streaming import (
    Done,
    StoredWords,
    corpus_key,
    draw_texts,
    read_moments,
    store_words,
)
from retriever.encoders.registry import LoadContext, kind_of
from retriever.encoders.settings import EncoderSettings, parse_encoder
from retriever.encoders.transformer.sharing import BackboneSharing
from retriever.errors import ConfigError, SourceError, require_several, require_torch
from retriever.training.checkpoint import Checkpoint
from retriever.training.loop import silent

DEFAULT_REGULARIZATION = 10.0
# Sentences of a training step (Sec. 4.4).
_BATCH = 512
# An epoch has at least this many steps, if its batches then have the smallest size or more.
_STEPS = 16
_SMALLEST_BATCH = 32
# Most texts to hold out.
_HELD_OUT = 1024


class GoldPairs(Protocol):
    """Pairs of sentences scored by people, such as the result of `eval.read_pairs`."""

    @property
    def gold(self) -> NDArray[np.float64]:
        """(pairs,) scores. Higher is more similar."""

    @property
    def left(self) -> list[str]:
        """First sentence of each pair."""

    @property
    def right(self) -> list[str]:
        """Second sentence of each pair."""


DEFAULT_SETTINGS = MetaSettings()


def fit_meta(
    texts: Iterable[str],
    sources: Sequence[str | Encoder],
    output: str | Path,
    settings: MetaSettings = DEFAULT_SETTINGS,
    *,
    train: GoldPairs | None = None,
    dev: GoldPairs | None = None,
    device: str | None = None,
    download: bool = False,
    begin: Callable[[int], object] = silent,
    done: Done = lambda texts, pieces: None,
    epoch: Callable[[MetaEpoch], object] = silent,
    notify: Callable[[str], object] = silent,
) -> Encoder:
    """Combine several encoders into one, and write it to a folder.

    A killed run resumes if it is started again with equal texts, sources and settings; the result
    has the same bits. Its work is in the folder ``.OUTPUT.fitting`` beside the output.

    Args:
        texts: corpus, read once as a stream; `conc`, `avg` and `sup` do not read it.
        sources: two or more encoders from `Encoder.load` or their text forms. All are loaded anew.
        output: a new folder, or the folder of another meta-embedding, which is replaced.
        settings: method and its settings.
        train: pairs that `sup` is trained on.
        dev: pairs whose Pearson correlation stops training. `sup` needs them; `unsup` without them
            stops by its loss on a tenth of the corpus.
        device: torch device of the sources; None uses a GPU if there is one.
        download: allow downloads of a hub id that is not in the cache.
        begin: called with the number of texts to encode.
        done: called with the texts and pieces of each batch.
        epoch: called after each epoch of training.
        notify: called with lines to show to the user.

    Raises:
        ConfigError: impossible settings, sources or folder; more dimensions than the corpus
            supports; a source with constant vectors.
        SourceError: the corpus has no text.
        StorageError: the disk is full or cannot be written.
        Other errors: see `Encoder.load`.
    """
    _check_request(sources, Path(output), settings.method, train, dev)
    loaded = MetaSources(_load_sources(sources, device, download), settings.level)
    fit = _MetaFit(loaded, settings, Path(output), begin, done, epoch, notify)
    model = fit.run(texts, train, dev)
    return Encoder(model.spec(EncoderSettings(model=str(output))), model)


def _check_request(
    sources: Sequence[str | Encoder],
    folder: Path,
    method: Method,
    train: GoldPairs | None,
    dev: GoldPairs | None,
) -> None:
    require_several("sources", sources)
    FORM.check_target(folder)
    _check_pairs(method, train, dev)
    if method in ("unsup", "sup"):
        require_torch(f"the method {method}")


# A map, its parameters, and its provenance.
_FitResult = tuple[Projection, dict[str, Any], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _MetaFit:
    """A run of `fit_meta`."""

    sources: MetaSources
    settings: MetaSettings
    folder: Path
    begin: Callable[[int], object]
    done: Done
    epoch: Callable[[MetaEpoch], object]
    notify: Callable[[str], object]

    @property
    def work(self) -> Path:
        """The folder of unfinished work."""
        return self.folder.with_name(f".{self.folder.resolve().name}.fitting")

    def run(
        self, texts: Iterable[str], train: GoldPairs | None, dev: GoldPairs | None
    ) -> MetaModel:
        """Fit the map, write the folder, and remove the work."""
        settings = self.settings
        sources = self.sources
        _note_effects(sources, settings, self.notify)
        projection, parameters, provenance = self._fit(texts, train, dev)
        default = max(sources.widths)
        if (
            settings.method in ("svd", "gcca")
            and settings.dimensions is None
            and projection.dimensions < default
        ):
            self.notify(
                f"note: {projection.dimensions} dimensions, not {default}: the corpus supports no "
                "more; read more texts for more"
            )
        parts = MetaParts(
            settings.method,
            sources.level,
            settings.word_pooling,
            projection,
            sources.specs,
            {"dimensions": projection.dimensions, **parameters},
            provenance,
        )
        model = MetaModel(sources, parts)
        model.save(self.folder)
        with storage_errors(self.folder.parent):
            shutil.rmtree(self.work, ignore_errors=True)
        return model

    def _fit(
        self, texts: Iterable[str], train: GoldPairs | None, dev: GoldPairs | None
    ) -> _FitResult:
        method = self.settings.method
        if method == "avg":
            return average(self.sources.widths), {}, {}
        if method == "conc":
            return concatenation(self.sources.widths), {}, {}
        if method == "sup":
            assert train is not None
            assert dev is not None
            return self._fit_on_pairs(train, dev)
        return self._fit_on_corpus(texts, dev)

    def _fit_on_corpus(self, texts: Iterable[str], dev: GoldPairs | None) -> _FitResult:
        """Fit SVD, GCCA or UNSUP."""
        settings = self.settings
        sample_size = settings.sample or SAMPLE[settings.method]
        sample, text_count = draw_texts(texts, sample_size, settings.seed)
        if not sample:
            raise SourceError("the corpus has no text; name another corpus")
        if settings.method == "unsup" and len(sample) == 1:
            raise SourceError("unsup: expected 2 texts or more to train on, found 1; read more")
        provenance: dict[str, Any] = {
            "texts": text_count,
            "sampled": len(sample),
            "seed": settings.seed,
        }
        if settings.method == "unsup":
            return self._fit_unsup(sample, dev, provenance)
        self.begin(len(sample))
        moments = read_moments(self.sources, sample, self.work, self.done)
        provenance |= {"words": moments.words, "known": moments.shares()}
        if settings.method == "svd":
            return svd(moments, settings.dimensions), {}, provenance
        regularization = settings.regularization
        regularization = DEFAULT_REGULARIZATION if regularization is None else regularization
        names = [str(spec) for spec in self.sources.specs]
        projection = gcca(moments, settings.dimensions, regularization, names)
        return projection, {"regularization": regularization}, provenance

    def _fit_unsup(
        self, texts: list[str], dev: GoldPairs | None, provenance: dict[str, Any]
    ) -> _FitResult:
        self.begin(len(texts) + (0 if dev is None else 2 * len(dev.gold)))
        words = store_words(self.sources, texts, self.work, self.done)
        dev_batches = () if dev is None else list(self._store_pairs(dev).batches())
        order = np.random.default_rng(self.settings.seed).permutation(len(texts))
        held_out_count = min(max(len(texts) // 10, 1), _HELD_OUT)
        held_out = np.sort(order[:held_out_count])
        train = np.sort(order[held_out_count:])
        projection, history = self._train(
            lambda epoch: words.batches(self._shuffled(train, epoch), _batch_size(len(train))),
            texts,
            [] if dev is None else [dev],
            held_out=list(words.batches(held_out, _BATCH)),
            dev=dev_batches,
        )
        provenance |= {
            "words": len(words.types),
            "stopped_by": "loss on held-out texts" if dev is None else "dev Pearson",
            **_count_epochs(history),
        }
        return projection, asdict(self.settings.training), provenance

    def _fit_on_pairs(self, train: GoldPairs, dev: GoldPairs) -> _FitResult:
        """Train SUP."""
        self.begin(2 * (len(train.gold) + len(dev.gold)))
        scored = self._store_pairs(train)
        dev_batches = list(self._store_pairs(dev).batches())
        rows = np.arange(len(train.gold))
        projection, history = self._train(
            lambda epoch: scored.batches(self._shuffled(rows, epoch)),
            [],
            [train, dev],
            dev=dev_batches,
        )
        provenance = {
            "pairs": len(train.gold),
            "dev_pairs": len(dev.gold),
            "words": len(scored.words.types),
            **_count_epochs(history),
            "dev_pearson": history.curve[history.best].score,
            "seed": self.settings.seed,
        }
        parameters = asdict(self.settings.training)
        del parameters["margin"]
        return projection, parameters, provenance

    def _train(
        self,
        epochs: Callable[[int], Iterable[TrainingBatch]],
        texts: Sequence[str],
        pairs: Sequence[GoldPairs],
        **judges: Any,
    ) -> tuple[Projection, History]:
        """Train on batches, with a checkpoint in a folder named by the digest of the training."""
        pair_texts = [text for pair_set in pairs for text in (*pair_set.left, *pair_set.right)]
        gold = [score for pair_set in pairs for score in pair_set.gold.tolist()]
        key = corpus_key(self.sources, [*texts, *pair_texts])
        content = json.dumps([asdict(self.settings), key, gold])
        digest = hashlib.sha256(content.encode()).hexdigest()
        checkpoint = Checkpoint(self.work / f"training-{digest}", {"training": digest})
        return fit_attention(
            epochs,
            self.sources.widths,
            self.settings,
            done=self.epoch,
            checkpoint=checkpoint,
            **judges,
        )

    def _store_pairs(self, pairs: GoldPairs) -> _StoredPairs:
        """Store the words of pairs; scale gold scores to [0, 1]."""
        low = pairs.gold.min()
        span = np.ptp(pairs.gold)
        gold = np.asarray((pairs.gold - low) / (span or 1.0), np.float32)
        texts = [*pairs.left, *pairs.right]
        return _StoredPairs(store_words(self.sources, texts, self.work, self.done), gold)

    def _shuffled(self, rows: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng([self.settings.seed, epoch]).permutation(rows)


@dataclass(frozen=True, slots=True, eq=False)
class _StoredPairs:
    """Pairs whose words are on disk: all first sentences, then all second sentences."""

    words: StoredWords
    gold: NDArray[np.float32]

    def batches(self, pairs: NDArray[np.int64] | None = None) -> Iterator[ScoredBatch]:
        """Yield batches of pairs, all by default, with as many sentences as other batches."""
        pairs = np.arange(len(self.gold)) if pairs is None else pairs
        size = _batch_size(2 * len(pairs)) // 2
        for start in range(0, len(pairs), size):
            rows = pairs[start : start + size]
            sentences = np.stack([rows, rows + len(self.gold)], axis=1).reshape(-1)
            yield ScoredBatch(self.words.batch(sentences), self.gold[rows])


def _load_sources(
    sources: Sequence[str | Encoder], device: str | None, download: bool
) -> list[MetaSource]:
    loading = LoadContext(device, download, sharing=BackboneSharing())
    loaded: list[MetaSource] = []
    for source in sources:
        if not isinstance(source, str | Encoder):
            raise TypeError(f"sources: expected text forms or Encoders, found {source!r:.60}")
        requested = parse_encoder(source if isinstance(source, str) else str(source.spec))
        loaded.append(MetaSource(*kind_of(requested).load(requested, loading)))
    return loaded


def _check_pairs(method: Method, train: GoldPairs | None, dev: GoldPairs | None) -> None:
    if method == "sup" and (train is None or dev is None):
        lacking = "training pairs (--train)" if train is None else "dev pairs (--dev)"
        raise ConfigError(f"method: sup needs {lacking}, whose scores it learns or stops by")
    if method != "sup" and train is not None:
        raise ConfigError(f"train: {method} learns from no scores; leave it out, or use sup")
    if method not in ("sup", "unsup") and dev is not None:
        raise ConfigError(f"dev: {method} has no training that is stopped; leave it out")


def _note_effects(
    sources: MetaSources, settings: MetaSettings, notify: Callable[[str], object]
) -> None:
    if sources.level == "sentence" and settings.level is None:
        notify("note: a source has no word vectors, so vectors of whole texts are combined")
    if sources.level == "sentence" and settings.pooling is not None:
        notify("note: vectors of texts are not pooled; --pooling has no effect")
    if sources.level == "word":
        for spec in sources.specs:
            if spec.settings.static is not None:
                notify(
                    f"note: {spec.model} gives word vectors of length 1, without weights of words; "
                    "--level sentence keeps the weights of SIF, uSIF and LSA, and the maximum and "
                    "minimum of p-mean"
                )


def _batch_size(sentences: int) -> int:
    return min(_BATCH, max(_SMALLEST_BATCH, sentences // _STEPS))


def _count_epochs(history: History) -> dict[str, int]:
    return {"epoch": history.best, "epochs": len(history.curve) - 1}
