"""LSA against scikit-learn's TfidfVectorizer and TruncatedSVD."""

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from retriever.encoders import Encoder
from retriever.encoders.static import LSASettings, StaticModel, fit_lsa
from retriever.errors import MissingExtraError, SourceError

_CHANCE = np.random.default_rng(3)
_WORDS = [f"{stem}{number}" for stem in ("Alpha", "été", "x_") for number in range(20)]
TEXTS = [
    ", ".join(_CHANCE.choice(_WORDS, size, p=np.arange(60, 0, -1) / 1830))
    for size in _CHANCE.integers(3, 12, 120)
]


@pytest.mark.parametrize("settings", [{}, {"min_df": 4, "max_df": 0.2}])
def test_texts_have_the_vectors_of_scikit_learn(settings):
    limits = {"min_df": 2, "max_df": 0.5, **settings}
    vectorizer = TfidfVectorizer(token_pattern=r"\w+", **limits)
    matrix = vectorizer.fit_transform(TEXTS)
    # So near the rank that the randomized SVD is exact.
    dimensions = matrix.shape[1] - 5
    expected = TruncatedSVD(dimensions, algorithm="arpack").fit_transform(matrix)
    model = fit_lsa(iter(TEXTS), LSASettings(dimensions, **settings))
    assert set(model.lexicon.tokenizer.words) == set(vectorizer.get_feature_names_out())
    found = model.embed(model.tokenize(TEXTS)).astype(np.float64)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    cosines = found @ found.T / lengths / lengths.T
    other = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(cosines, other @ other.T, atol=1e-5)
    assert model.provenance["texts"] == 120


def test_saved_lsa_loads_as_static_encoder_with_same_weights(tmp_path):
    made = fit_lsa(TEXTS, LSASettings(8))
    made.save(tmp_path / "lsa")
    encoder = Encoder.load(str(tmp_path / "lsa"))
    assert encoder.spec.settings.static == "average"
    vectors = encoder.encode([TEXTS[0], "unknown only", ""])
    assert np.linalg.norm(vectors, axis=1).tolist() == pytest.approx([1, 0, 0], abs=1e-6)
    again = fit_lsa(TEXTS, LSASettings(8))
    assert again.weights == made.weights == StaticModel.load(tmp_path / "lsa").weights
    assert fit_lsa(TEXTS, LSASettings(8, sample=50, seed=1)).weights != made.weights


def test_the_most_frequent_words_are_kept():
    texts = ["a b c", "a b", "a d", "e"] * 2
    model = fit_lsa(texts, LSASettings(2, max_df=1.0, max_words=2))
    assert model.lexicon.tokenizer.words == ["a", "b"]
    assert fit_lsa(texts, LSASettings(300)).dimensions == 4


def test_too_few_words_are_refused_with_a_remedy(monkeypatch):
    with pytest.raises(SourceError, match=r"found 2 texts and 0 such words.*--set min-df"):
        fit_lsa(["one two", "three"])
    with pytest.raises(SourceError, match="found 0 texts"):
        fit_lsa([])
    monkeypatch.setattr("retriever.errors.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="LSA needs scikit-learn"):
        fit_lsa(TEXTS)
