"""Fitting: streams, samples, resumes after a kill, and stops where its labels say."""

import os
import signal
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from retriever.encoders.meta import MetaSettings, UnsupSettings, fit_meta, streaming
from retriever.encoders.meta.streaming import draw_texts
from retriever.encoders.static import fit_static
from retriever.errors import ConfigError, SourceError
from tests.crash.forked import in_child
from tests.retriever.encoders.static.static_samples import write_vectors
from tests.retriever.ranges import check_ranges

_CHANCE = np.random.default_rng(5)
WORDS = [*(f"w{number}" for number in range(30)), "the", "cat", "mat", "dog", "zzz"]
CORPUS = [" ".join(_CHANCE.choice(WORDS, size)) for size in _CHANCE.integers(1, 9, 240)]
PAIRS = SimpleNamespace(
    left=["w1 w2 w3", "the cat", "w5 w6", "dog w7"] * 6,
    right=["w1 w2 w4", "the cat sat", "w9 mat", "zzz w30"] * 6,
    gold=np.array([4.0, 5.0, 1.0, 0.0] * 6),
)
QUICK = UnsupSettings(epochs=2, learning_rate=0.01)


@pytest.fixture
def sources(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit_static(write_vectors(tmp_path), "average", ()).save(tmp_path / "static")
    return [str(folders("bert")), f"{folders('bert')}::layers=0", "static"]


@pytest.fixture
def make(sources):
    def make_(method, output="both", texts=CORPUS, used=sources, **options):
        settings = {key: options.pop(key) for key in list(options) if key in _SETTINGS}
        return fit_meta(
            iter(texts), used, output, MetaSettings(method, **settings), device="cpu", **options
        )

    return make_


_SETTINGS = MetaSettings.__dataclass_fields__


@pytest.mark.parametrize("level", ["word", "sentence"])
def test_svd_of_a_stream_is_that_of_all_words_at_once(make, level):
    encoder = make("svd", level=level, dimensions=6, texts=CORPUS[:90])
    model = encoder._model
    batches = [model.sources.vectors([one])[0] for one in model.tokenize(CORPUS[:90])]
    rows = np.hstack([np.concatenate(one) for one in zip(*batches, strict=True)]).astype(np.float64)
    width = [0, 16, 32, 37]
    for start, stop in pairwise(width):
        has = rows[:, start:stop].any(axis=1)
        rows[has, start:stop] -= rows[has, start:stop].mean(axis=0)
    _, _, expected = np.linalg.svd(rows, full_matrices=False)
    found = np.hstack(encoder.meta_parts().projection.matrices)
    np.testing.assert_allclose(np.abs((found * expected[:6]).sum(axis=1)), 1, atol=1e-5)
    provenance = encoder.meta_parts().provenance
    assert provenance["texts"] == 90
    assert provenance["words"] == len(rows)
    assert provenance["known"][2] == pytest.approx(rows[:, 32:].any(axis=1).mean())


def often(monkeypatch):
    """Groups are small, and there is a commit after each."""
    monkeypatch.setattr(streaming, "_GROUP", 80)
    monkeypatch.setattr(streaming.read_moments, "__defaults__", (0.0,))


@pytest.mark.parametrize(
    ("method", "moment"), [("gcca", "reading"), ("unsup", "reading"), ("unsup", "training")]
)
def test_a_killed_run_resumes_and_ends_with_the_same_bits(
    make, tmp_path, method, moment, one_thread, monkeypatch
):
    often(monkeypatch)
    make(method, output="whole", training=QUICK)
    read = []

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def done(texts, pieces):
        read.append(texts)
        if moment == "reading" and sum(read) > 200:
            die()

    def epoch(one):
        if moment == "training" and one.epoch == 1:
            die()

    status, _ = in_child(lambda: make(method, training=QUICK, done=done, epoch=epoch) and None)
    assert status == -signal.SIGKILL
    assert not (tmp_path / "both").exists()
    assert (tmp_path / ".both.fitting").is_dir()
    for path in (tmp_path / ".both.fitting").glob("stored-*/*") if moment == "reading" else ():
        # A part of a group may have been written.
        path.write_bytes(path.read_bytes() + bytes(8))
    encoded = []
    make(method, training=QUICK, done=lambda texts, pieces: encoded.append((texts, pieces)))
    # The first groups are taken from the killed run, without encoding.
    assert encoded[0] == (240 if moment == "training" else 160, 0)
    assert sum(texts for texts, _ in encoded) == 240
    assert not (tmp_path / ".both.fitting").exists()
    for name in ("projection.safetensors", "meta.json"):
        whole, resumed = (tmp_path / folder / name for folder in ("whole", "both"))
        assert whole.read_bytes() == resumed.read_bytes()


@pytest.mark.parametrize("method", ["svd", "unsup"])
def test_meta_checkpoint_of_another_corpus_is_ignored(make, monkeypatch, method):
    often(monkeypatch)
    read = [0]

    def done(texts, pieces):
        read[0] += texts
        # Within the second group, or at its end.
        if read[0] > (100 if method == "svd" else 239):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(method, texts=CORPUS[::-1], training=QUICK, done=done)
    expected = make(method, output="first", training=QUICK)
    assert make(method, training=QUICK).spec.weights == expected.spec.weights


@pytest.mark.parametrize("method", ["svd", "unsup"])
def test_meta_training_is_decided_by_seed(make, method):
    options = {"sample": 50, "training": QUICK}
    weights = [make(method, seed=seed, **options).spec.weights for seed in (1, 1, 2)]
    assert weights[0] == weights[1] != weights[2]


def test_a_sample_keeps_the_order_and_leaves_out_empty_texts():
    texts = [str(number) for number in range(60)]
    drawn, seen = draw_texts(["", *texts, "  "], 15, 0)
    assert (len(set(drawn)), seen) == (15, 60)
    assert drawn == sorted(drawn, key=int)
    assert draw_texts(iter(texts), 100, 0) == (texts, 60)


def test_unsup_is_stopped_by_dev_pairs_or_by_held_out_texts(make):
    by_loss = make("unsup", texts=CORPUS[:200], training=QUICK, dimensions=8)
    assert by_loss.spec.dimensions == 8
    assert by_loss.meta_parts().provenance["stopped_by"] == "loss on held-out texts"
    assert by_loss.meta_parts().projection.weights.sum() == pytest.approx(1)
    scores = []
    by_pairs = make(
        "unsup", texts=CORPUS[:200], training=QUICK, dev=PAIRS, epoch=lambda one: scores.append(one)
    )
    provenance = by_pairs.meta_parts().provenance
    assert provenance["stopped_by"] == "dev Pearson"
    best = max(scores, key=lambda one: one.score)
    assert provenance["epoch"] == best.epoch
    # The score of the epoch that is kept is that of the encoder.
    left, right = by_pairs.encode(PAIRS.left), by_pairs.encode(PAIRS.right)
    cosines = (left * right).sum(axis=1)
    assert best.score == pytest.approx(np.corrcoef(cosines, PAIRS.gold)[0, 1], abs=1e-4)


def test_sup_learns_the_scores_of_pairs(make):
    plain = make("avg", output="plain")
    training = UnsupSettings(epochs=20, patience=20, learning_rate=0.02)
    epochs = []
    encoder = make("sup", train=PAIRS, dev=PAIRS, training=training, epoch=epochs.append)

    def pearson(one):
        cosines = (one.encode(PAIRS.left) * one.encode(PAIRS.right)).sum(axis=1)
        return np.corrcoef(cosines, PAIRS.gold)[0, 1]

    provenance = encoder.meta_parts().provenance
    assert pearson(encoder) == pytest.approx(provenance["dev_pearson"], abs=1e-4)
    assert pearson(encoder) > max(0.95, pearson(plain))
    assert provenance["pairs"] == 24


def test_numbers_have_ranges():
    unsup = {
        "at least 0": "weight_decay margin",
        "at least 1": "epochs patience",
        "above 0": "learning_rate",
    }
    check_ranges(UnsupSettings, unsup)
    meta = {"at least 0": "regularization seed", "at least 1": "dimensions sample"}
    check_ranges(MetaSettings, meta)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "conc", "dimensions": 3}, "conc has the sum of its sources'"),
        ({"method": "avg", "dimensions": 3}, "avg has the greatest of its sources'"),
        ({"regularization": 1.0}, "it belongs to gcca"),
        ({"method": "sup", "sample": 3}, "sup reads no corpus"),
        ({"method": "pca"}, "method: expected conc, avg, svd, gcca, sup or unsup"),
    ],
)
def test_settings_that_a_method_does_not_use_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        MetaSettings(**settings)


def test_pooling_is_the_papers_by_default():
    assert MetaSettings("gcca", regularization=0.0, dimensions=1, sample=1).word_pooling == "mean"
    assert MetaSettings("sup").word_pooling == MetaSettings("unsup").word_pooling == "max"
    assert MetaSettings("unsup", pooling="mean").word_pooling == "mean"


@pytest.mark.parametrize(
    ("method", "options", "error", "message"),
    [
        ("sup", {"train": PAIRS}, ConfigError, r"dev pairs \(--dev\)"),
        ("sup", {"dev": PAIRS}, ConfigError, r"training pairs \(--train\)"),
        ("svd", {"train": PAIRS}, ConfigError, "svd learns from no scores"),
        ("svd", {"dev": PAIRS}, ConfigError, "svd has no training that is stopped"),
        ("svd", {"dimensions": 99}, ConfigError, "dimensions: expected at most"),
        ("svd", {"texts": ["", " "]}, SourceError, "the corpus has no text"),
        ("unsup", {"texts": ["one"]}, SourceError, "expected 2 texts or more"),
        ("svd", {"used": "all-MiniLM-L6-v2"}, TypeError, "sources"),
    ],
)
def test_what_cannot_be_fitted_is_refused_before_anything_is_written(
    make, tmp_path, method, options, error, message
):
    with pytest.raises(error, match=message):
        make(method, **options)
    assert not (tmp_path / "both").exists()


def test_meta_training_notes_ineffective_settings_and_reduced_dimensions(make, sources):
    notes = []
    make("svd", texts=CORPUS[:3], notify=notes.append)
    assert any("the corpus supports no more" in note for note in notes)
    assert any("static gives word vectors of length 1" in note for note in notes)
    notes.clear()
    make("conc", used=[f"{sources[0]}::sbert-wk", "static"], pooling="max", notify=notes.append)
    assert any("vectors of whole texts are combined" in note for note in notes)
    assert any("--pooling has no effect" in note for note in notes)
