"""A meta-embedding made from a corpus, or from pairs that people have scored."""

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

from indexes import storage_errors
from retriever.encoders.encoder import Encoder
from retriever.encoders.meta.attention import (
    Batch,
    History,
    MetaEpoch,
    ScoredPairs,
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
from retriever.encoders.meta.sources import Source, Sources
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
from retriever.encoders.transformer.backbone import sharing
from retriever.errors import ConfigError, SourceError, require_several, require_torch
from retriever.training.checkpoint import Checkpoint
from retriever.training.loop import silent

DEFAULT_REGULARIZATION = 10.0
# Sentences of a training step (Sec. 4.4), fewer where an epoch would have fewer steps than this;
# and the most that are held out.
_BATCH = 512
_STEPS = 16
_SMALLEST_BATCH = 32
_HELD_OUT = 1024


class GoldPairs(Protocol):
    """Pairs of sentences that people have scored, such as `eval.read_pairs` returns."""

    @property
    def gold(self) -> NDArray[np.float64]:
        """(pairs,) higher is more similar."""

    @property
    def left(self) -> list[str]:
        """Each pair's first sentence."""

    @property
    def right(self) -> list[str]:
        """Its second."""


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
    """Make one encoder of several, and write it to a folder.

    A run that was killed resumes if it is started again with equal texts, sources and settings; the
    result has the same bits. Until then its work is in the folder ``.OUTPUT.fitting`` beside the
    output.

    Args:
        texts: the corpus, read once as a stream; `conc`, `avg` and `sup` do not read it.
        sources: two or more text forms of encoders, or encoders that `Encoder.load` returned, which
            are loaded again.
        output: a new folder, or that of another meta-embedding, which is replaced.
        settings: how.
        train: pairs that `sup` is trained on.
        dev: pairs whose Pearson correlation says when training stops: needed by `sup`; `unsup`
            without them stops by its loss on a tenth of the corpus.
        device: torch device of the sources; None uses a GPU if there is one.
        download: allow downloads of a hub id that is not in the cache.
        begin: called with the number of texts that will be encoded.
        done: called with the texts and pieces of each batch.
        epoch: called after each epoch of training.
        notify: called with lines that a person should read.

    Raises:
        ConfigError: settings or sources that do not fit, or a folder that holds something else;
            more dimensions than the corpus supports; a source that does not vary.
        SourceError: the corpus has no text.
        StorageError: the disk is full or cannot be written.
        What `Encoder.load` raises.
    """
    require_several("sources", sources)
    folder = Path(output)
    FORM.check_target(folder)
    _check_pairs(settings.method, train, dev)
    if settings.method in ("unsup", "sup"):
        require_torch(f"the method {settings.method}")
    loaded = Sources(_load(sources, device, download), settings.level)
    _remark(loaded, settings, notify)
    work = folder.with_name(f".{folder.resolve().name}.fitting")
    fit = _Fit(loaded, settings, work, begin, done, epoch)
    found: _Found = average(loaded.widths), {}, {}
    if settings.method == "conc":
        found = concatenation(loaded.widths), {}, {}
    elif settings.method == "sup":
        assert train is not None
        assert dev is not None
        found = fit.supervised(train, dev)
    elif settings.method != "avg":
        found = fit.on_corpus(texts, dev)
    projection, parameters, provenance = found
    if settings.method in ("svd", "gcca") and settings.dimensions is None:
        usual = max(loaded.widths)
        if projection.dimensions < usual:
            notify(
                f"note: {projection.dimensions} dimensions, not {usual}: the corpus supports no "
                "more; read more texts for more"
            )
    parts = MetaParts(
        settings.method,
        loaded.level,
        settings.word_pooling,
        projection,
        loaded.specs,
        {"dimensions": projection.dimensions, **parameters},
        provenance,
    )
    model = MetaModel(loaded, parts)
    model.save(folder)
    with storage_errors(folder.parent):
        shutil.rmtree(work, ignore_errors=True)
    return Encoder(model.spec(EncoderSettings(model=str(output))), model)


_Found = tuple[Projection, dict[str, Any], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Fit:
    """One run: a map, the settings it has for a person, and what it was fitted on."""

    sources: Sources
    settings: MetaSettings
    work: Path
    begin: Callable[[int], object]
    done: Done
    epoch: Callable[[MetaEpoch], object]

    def on_corpus(self, texts: Iterable[str], dev: GoldPairs | None) -> _Found:
        """SVD, GCCA or UNSUP."""
        settings = self.settings
        most = settings.sample or SAMPLE[settings.method]
        drawn, seen = draw_texts(texts, most, settings.seed)
        if not drawn:
            raise SourceError("the corpus has no text; name one that has")
        if settings.method == "unsup" and len(drawn) == 1:
            raise SourceError("unsup: expected 2 texts or more to train on, found 1; read more")
        provenance: dict[str, Any] = {"texts": seen, "sampled": len(drawn), "seed": settings.seed}
        if settings.method == "unsup":
            return self._unsupervised(drawn, dev, provenance)
        self.begin(len(drawn))
        moments = read_moments(self.sources, drawn, self.work, self.done)
        provenance |= {"words": moments.words, "known": moments.shares()}
        if settings.method == "svd":
            return svd(moments, settings.dimensions), {}, provenance
        tau = settings.regularization
        tau = DEFAULT_REGULARIZATION if tau is None else tau
        names = [str(spec) for spec in self.sources.specs]
        found = gcca(moments, settings.dimensions, tau, names)
        return found, {"regularization": tau}, provenance

    def _unsupervised(
        self, texts: list[str], dev: GoldPairs | None, provenance: dict[str, Any]
    ) -> _Found:
        self.begin(len(texts) + (0 if dev is None else 2 * len(dev.gold)))
        words = store_words(self.sources, texts, self.work, self.done)
        judged = () if dev is None else list(self._pairs(dev).batches())
        order = np.random.default_rng(self.settings.seed).permutation(len(texts))
        held = min(max(len(texts) // 10, 1), _HELD_OUT)
        held_out = np.sort(order[:held])
        train = np.sort(order[held:])
        projection, history = self._trained(
            lambda epoch: words.batches(self._shuffled(train, epoch), _batch_size(len(train))),
            texts,
            [] if dev is None else [dev],
            held_out=list(words.batches(held_out, _BATCH)),
            dev=judged,
        )
        provenance |= {
            "words": len(words.types),
            "stopped_by": "loss on held-out texts" if dev is None else "dev Pearson",
            **_course(history),
        }
        return projection, asdict(self.settings.training), provenance

    def supervised(self, train: GoldPairs, dev: GoldPairs) -> _Found:
        """SUP."""
        self.begin(2 * (len(train.gold) + len(dev.gold)))
        scored = self._pairs(train)
        judged = list(self._pairs(dev).batches())
        everything = np.arange(len(train.gold))
        projection, history = self._trained(
            lambda epoch: scored.batches(self._shuffled(everything, epoch)),
            [],
            [train, dev],
            dev=judged,
        )
        provenance = {
            "pairs": len(train.gold),
            "dev_pairs": len(dev.gold),
            "words": len(scored.words.types),
            **_course(history),
            "dev_pearson": history.curve[history.best].score,
            "seed": self.settings.seed,
        }
        parameters = asdict(self.settings.training)
        del parameters["margin"]
        return projection, parameters, provenance

    def _trained(
        self,
        epochs: Callable[[int], Iterable[Batch]],
        texts: Sequence[str],
        pairs: Sequence[GoldPairs],
        **judges: Any,
    ) -> tuple[Projection, History]:
        """Train on batches; a checkpoint is in a folder of this training alone."""
        read = [text for one in pairs for text in (*one.left, *one.right)]
        gold = [score for one in pairs for score in one.gold.tolist()]
        key = corpus_key(self.sources, [*texts, *read])
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

    def _pairs(self, pairs: GoldPairs) -> _PairWords:
        """Gold scores are brought to [0, 1]."""
        low = pairs.gold.min()
        span = np.ptp(pairs.gold)
        gold = np.asarray((pairs.gold - low) / (span or 1.0), np.float32)
        texts = [*pairs.left, *pairs.right]
        return _PairWords(store_words(self.sources, texts, self.work, self.done), gold)

    def _shuffled(self, rows: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng([self.settings.seed, epoch]).permutation(rows)


@dataclass(frozen=True, slots=True, eq=False)
class _PairWords:
    """Pairs whose words are on disk: all first sentences, then all second ones."""

    words: StoredWords
    gold: NDArray[np.float32]

    def batches(self, pairs: NDArray[np.int64] | None = None) -> Iterator[ScoredPairs]:
        """Half as many pairs as a batch of sentences has sentences, in each; by default of all."""
        pairs = np.arange(len(self.gold)) if pairs is None else pairs
        size = _batch_size(2 * len(pairs)) // 2
        for start in range(0, len(pairs), size):
            rows = pairs[start : start + size]
            sentences = np.stack([rows, rows + len(self.gold)], axis=1).reshape(-1)
            yield ScoredPairs(self.words.batch(sentences), self.gold[rows])


def _load(sources: Sequence[str | Encoder], device: str | None, download: bool) -> list[Source]:
    loading = LoadContext(device, download, sharing())
    found: list[Source] = []
    for one in sources:
        if not isinstance(one, str | Encoder):
            raise TypeError(f"sources: expected text forms or Encoders, found {one!r:.60}")
        asked = parse_encoder(one if isinstance(one, str) else str(one.spec))
        found.append(Source(*kind_of(asked).load(asked, loading)))
    return found


def _check_pairs(method: Method, train: GoldPairs | None, dev: GoldPairs | None) -> None:
    if method == "sup" and (train is None or dev is None):
        lacking = "training pairs (--train)" if train is None else "dev pairs (--dev)"
        raise ConfigError(f"method: sup needs {lacking}, whose scores it learns or stops by")
    if method != "sup" and train is not None:
        raise ConfigError(f"train: {method} learns from no scores; leave it out, or use sup")
    if method not in ("sup", "unsup") and dev is not None:
        raise ConfigError(f"dev: {method} has no training that is stopped; leave it out")


def _remark(sources: Sources, settings: MetaSettings, notify: Callable[[str], object]) -> None:
    if sources.level == "sentence" and settings.level is None:
        notify("note: a source has no word vectors, so vectors of whole texts are combined")
    if sources.level == "sentence" and settings.pooling is not None:
        notify("note: vectors of texts are not pooled; --pooling has no effect")
    if sources.level == "word":
        for spec in sources.specs:
            if spec.settings.static is not None:
                notify(
                    f"note: of {spec.model} the word vectors are used, each of length 1, without "
                    "weights of words; --level sentence keeps those that SIF, uSIF and LSA have, "
                    "and the maximum and minimum of p-mean"
                )


def _batch_size(sentences: int) -> int:
    return min(_BATCH, max(_SMALLEST_BATCH, sentences // _STEPS))


def _course(history: History) -> dict[str, int]:
    return {"epoch": history.best, "epochs": len(history.curve) - 1}
