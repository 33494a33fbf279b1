"""Static encoders end to end: words found in texts, fitting, and refusals."""

import random
import re
import shutil
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.encoders import Encoder
from retriever.encoders.static import FitSettings, LSASettings, fit_static
from retriever.encoders.static.words import FileTokenizer
from retriever.errors import ConfigError, ModelError, SourceError
from tests.retriever.encoders.architectures import TEXTS as TEXTS_OF_ALL
from tests.retriever.encoders.architectures import save
from tests.retriever.encoders.static.static_samples import TEXTS, VECTORS, WORDS, write_vectors
from tests.retriever.ranges import check_ranges


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_vectors(tmp_path_factory.mktemp("vectors"))


def _found(model, text):
    return [
        (text[slice(*span)], WORDS[number] if number < len(WORDS) else None)
        for span, number in zip(model.piece_offsets(text), model.tokenize([text])[0], strict=True)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # As it is written, else in lower case; unknown words keep a place.
        ("The CAT, the zebra!", {"The": "The", "CAT": "cat", "the": "the", "zebra": None}),
        # A compound, if the file has it, else its parts.
        ("Don't e-mail", {"Don't": "don't", "e-mail": "e-mail"}),
        ("state-of-the-art", {"state": "state", "of": None, "the": "the", "art": "art"}),
    ],
)
def test_words_are_looked_up_in_the_file(file, text, expected):
    assert _found(fit_static(file, "average", ()), text) == list(expected.items())


def test_the_average_of_a_text_is_that_of_its_known_words(file):
    model = fit_static(file, "average", ())
    found = model.embed(model.tokenize(["cat zebra dog", "zebra", ""]))
    np.testing.assert_allclose(found[0], (VECTORS[2] + VECTORS[6]) / 2, atol=1e-6)
    np.testing.assert_array_equal(found[1:], np.zeros((2, 5)))
    assert found.dtype == np.float32
    assert model.dimensions == 5
    assert fit_static(file, "p-mean", ()).dimensions == 15
    assert model.embed([]).shape == (0, 5)
    assert model.tokenize(["the cat sat on"], 2) == [[0, 2]]


TOKENIZER = FileTokenizer(WORDS)


@given(st.text() | st.lists(st.sampled_from([*WORDS, "x", "-", ".", "'", " ", "é"])).map("".join))
def test_offsets_are_those_of_the_words_found(text):
    (ids,), (spans,) = TOKENIZER.ids_with_spans([text])
    assert [ids] == TOKENIZER.ids([text])
    assert len(ids) == len(spans)
    assert all(0 <= number <= len(WORDS) for number in ids)
    assert all(start < stop for start, stop in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    # Each letter and digit is in one word, and no span begins or ends within one.
    covered = {place for start, stop in spans for place in range(start, stop)}
    assert {match.start() for match in re.finditer(r"\w", text)} <= covered
    for number, (start, stop) in zip(ids, spans, strict=True):
        if number < len(WORDS):
            assert WORDS[number] in (text[start:stop], text[start:stop].lower())


# Models


@pytest.mark.parametrize(
    "name", ["bert", "roberta", "xlnet", "albert", "distilbert", "electra-narrow", "mpnet"]
)
def test_words_and_vectors_are_those_of_any_architecture(tmp_path, name):
    from transformers import AutoModel, AutoTokenizer

    folder = save(name, tmp_path / name)
    model = fit_static(folder, "average", ())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    table = AutoModel.from_pretrained(folder).get_input_embeddings().weight.detach().numpy()
    np.testing.assert_array_equal(model.lexicon.vectors, table)
    expected = tokenizer(list(TEXTS_OF_ALL), add_special_tokens=False)["input_ids"]
    unknown = tokenizer.unk_token_id
    found = [[len(table) if one == unknown else one for one in row] for row in expected]
    assert model.tokenize(TEXTS_OF_ALL) == found
    for text, row, vector in zip(TEXTS_OF_ALL, found, model.embed(found), strict=True):
        assert len(model.piece_offsets(text)) == len(row)
        # What the tokenizer has no word for counts for nothing.
        known = [one for one in row if one < len(table)]
        mean = table[known].mean(axis=0) if known else np.zeros(table.shape[1])
        np.testing.assert_allclose(vector, mean, rtol=1e-5, atol=1e-6)
    assert model.piece_offsets("w1 w2")[-1][1] == 5


@pytest.mark.parametrize(
    ("dtype", "names"),
    [
        ("float32", ["word_embedding.weight"]),
        ("bfloat16", ["xlnet.word_embedding.weight"]),
        ("float16", ["deep.er.embeddings.word_embeddings.weight"]),
        ("float32", ["model.embed_tokens.weight"]),
        ("float32", []),
        ("float32", ["a.word_embedding.weight", "b.word_embedding.weight"]),
    ],
)
def test_embedding_table_of_safetensors_is_read_in_any_dtype(tiny_models, tmp_path, dtype, names):
    import torch
    from safetensors.torch import save_file

    table = torch.randn(204, 8).to(getattr(torch, dtype))
    tensors = {name: table.clone() for name in names} | {"layer.weight": torch.zeros(2)}
    save_file(tensors, tmp_path / "model.safetensors")
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_models["bert"] / file, tmp_path)
    if len(names) != 1:
        with pytest.raises(ModelError, match="expected one table of input embeddings"):
            fit_static(tmp_path, "average", ())
        return
    model = fit_static(tmp_path, "average", ())
    np.testing.assert_allclose(model.embed([[9]])[0], table[9].float().numpy(), rtol=1e-6)


# Fitting


def test_static_method_that_needs_fitting_is_refused_with_train_command(file, tiny_models):
    for source, method in ((file, "sif"), (tiny_models["bert"], "usif")):
        with pytest.raises(ConfigError, match=f"retriever train static .*--method {method}"):
            Encoder.load(f"{source}::static={method}")


def _sentences(texts):
    """The known words of each text that has some, and how often each word is there."""
    found = [[word for word in text.split() if word in WORDS] for text in texts]
    return list(filter(None, found)), Counter(word for words in found for word in words)


def _embedded(model, texts):
    return model.embed(model.tokenize([text for text in texts if text not in ("", "zzz")]))


def test_sif_is_the_papers_algorithm_1(file):
    told = []
    model = fit_static(
        file, "sif", TEXTS * 100, settings=FitSettings(a=0.01), done=lambda *one: told.append(one)
    )
    assert np.sum(told, axis=0).tolist() == [1800, sum(len(one.split()) for one in TEXTS) * 100]
    sentences, counts = _sentences(TEXTS)
    weights = {word: 0.01 / (0.01 + n / counts.total()) for word, n in counts.items()}
    table = dict(zip(WORDS, VECTORS.astype(np.float64), strict=True))
    rows = np.array(
        [np.mean([weights[one] * table[one] for one in words], axis=0) for words in sentences]
    )
    first = np.linalg.svd(rows)[2][0]
    expected = rows - np.outer(rows @ first, first)
    np.testing.assert_allclose(_embedded(model, TEXTS), expected, atol=1e-5)
    assert model.fitted.parameters["components"] == 1
    # A word that the corpus does not have weighs 1.
    assert model.fitted.weights[WORDS.index("art")] == 1


def test_usif_is_the_published_method(file):
    # Enough of one word that it is above the threshold.
    texts = [*TEXTS, *["the"] * 40]
    model = fit_static(file, "usif", texts, settings=FitSettings(components=2))
    sentences, counts = _sentences(texts)
    total, size = counts.total(), len(counts)
    # "zzz" is a word of a text, though not a known one.
    length = (total + 3) / 55
    threshold = 1 - (1 - 1 / size) ** length
    alpha = sum(count / total > threshold for count in counts.values()) / size
    a = (1 - alpha) / (alpha * size / 2)
    assert model.fitted.parameters["a"] == pytest.approx(a)
    rows = []
    for sentence in sentences:
        words = VECTORS[[WORDS.index(word) for word in sentence]].astype(np.float64)
        weights = [a / (0.5 * a + counts[word] / total) for word in sentence]
        rows.append(weights @ (words / np.linalg.norm(words, axis=0)) / len(sentence))
    expected = np.array(rows)
    _, sigma, components = np.linalg.svd(expected, full_matrices=False)
    for index in range(2):
        share = sigma[index] ** 2 / (sigma[:2] ** 2).sum()
        expected = expected - share * np.outer(expected @ components[index], components[index])
    np.testing.assert_allclose(_embedded(model, texts), expected, atol=1e-5)
    least = min(counts.values()) / total
    assert model.fitted.weights[WORDS.index("art")] == pytest.approx(a / (0.5 * a + least))


def test_components_are_of_a_sample_that_only_the_seed_decides(file):
    chance = random.Random(0)
    texts = [" ".join(chance.choices(WORDS, k=6)) for _ in range(3000)]

    def fitted(sample, seed=0, source=texts):
        settings = FitSettings(sample=sample, seed=seed)
        return fit_static(file, "sif", iter(source), settings=settings)

    small = fitted(40)
    assert small.provenance["sampled"] == 40
    assert small.weights == fitted(40).weights
    assert small.weights != fitted(40, seed=1).weights
    whole = fitted(3000)
    assert whole.weights == fitted(10**6).weights
    # Word probabilities are those of all texts, not of the sample.
    np.testing.assert_array_equal(small.fitted.weights, whole.fitted.weights)
    assert abs(small.fitted.components @ whole.fitted.components.T).item() > 0.9


@pytest.mark.parametrize(
    ("method", "settings", "said"),
    [
        ("average", {"a": 0.1}, "a: average has nothing to fit"),
        ("p-mean", {"components": 2}, "components: p-mean has nothing to fit"),
        ("usif", {"a": 0.1}, "a: usif derives it"),
        ("usif", {"components": 6}, "expected 0 to the 5 dimensions, found 6"),
    ],
)
def test_a_setting_that_is_impossible_or_of_no_use_is_refused(file, method, settings, said):
    with pytest.raises(ConfigError, match=said):
        fit_static(file, method, TEXTS, settings=FitSettings(**settings))


def test_numbers_have_ranges():
    lsa = {"at least 1": "dimensions min_df max_words sample", "above 0 to 1": "max_df"}
    check_ranges(LSASettings, lsa)
    fit = {"at least 0": "components", "at least 1": "sample", "above 0": "a"}
    check_ranges(FitSettings, fit)


def test_a_corpus_without_a_known_word_is_refused(file):
    for texts in ([], ["", "zzz yyy"]):
        with pytest.raises(SourceError, match=f"none of {len(texts)} texts holds a word"):
            fit_static(file, "sif", texts)
