"""Language fit of an encoder: unknown words, and the weight that generated questions choose."""

from __future__ import annotations

import random
import re
import shutil
import warnings
import zlib
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from retriever import CorpusReader, Document, Index, encode_shards
from retriever.documents import Analyzer
from retriever.encoders import Encoder
from retriever.encoders.transformer.tokenizer import Tokenizer as ModelTokenizer
from retriever.index import import_documents
from retriever.search.fit import (
    PassageSample,
    count_words,
    is_due,
    is_unknown_language,
    measure_language_fit,
)
from tests.retriever.encoders.transformer.test_unigram import SCRIPTS
from tests.retriever.encoders.transformer.tokenizers_made import LINES, save_tokenizer

WORDS = ["слово", "книга", "дорога", "дерево", "город", "река", "берег", "ветер", "птица", "хлеб"]
WORDS += ["окно", "вечер", "письмо", "зима", "учитель", "музыка", "корабль", "яблоко", "лошадь"]


def russian(number):
    """Texts of several sentences about two words each."""
    chance, texts = random.Random(5), []
    for _ in range(number):
        topic = " ".join(chance.choices(WORDS, k=2))
        texts.append(
            " ".join(
                f"И {topic} были не {chance.choice(WORDS)}, что есть в доме." for _ in range(4)
            )
        )
    return texts


def encoder(pieces, vector):
    """An encoder with the ids 0 and 1 around a text; 2 is the unknown word."""

    def tokenize(texts):
        return [[0, *pieces(text), 1] for text in texts]

    def encode(texts, query=False):
        return np.stack([vector(text) for text in texts]).astype(np.float32)

    return SimpleNamespace(tokenize=tokenize, encode=encode)


def letters(text):
    return [2 if ord(letter) > 0xFFFF else ord(letter) for letter in text]


def whole(text):
    return [2] if text > "\U00010000" else [ord(text[0])] if text else []


@pytest.fixture(scope="session")
def multilingual():
    pytest.importorskip("layer_retriever_e5")
    return Encoder.load("multilingual-e5-small", device="cpu")


def russian_letters(text):
    return letters(text) if any("а" <= one <= "я" for one in text) else whole(text)


def noise(text):
    return np.random.default_rng(len(text)).normal(size=16)


@pytest.mark.parametrize("pieces", [letters, lambda text: [2] if text else []])
def test_language_fit_of_encoder_with_unknown_words_gives_weight_zero(pieces):
    fit = measure_language_fit(russian(80), encoder(pieces, noise), Analyzer(), 80)
    assert (fit.strange > 0.4, fit.weight, fit.questions) == (True, 0.0, 80)
    assert fit.bm25 == fit.hybrid > fit.dense
    assert "embeddings count 0 in hybrid search" in fit.warning
    assert f"{fit.strange:.0%} of {fit.words:,} words" in fit.warning


def test_a_run_without_spaces_counts_as_words_of_two_letters():
    unknown = encoder(lambda text: [2] if text > "z" else whole(text), noise)
    lines = [f"第{n}次防守丢分很多" for n in "一二三四五六七八九十"]
    for texts, strange in ((lines, 1.0), ([*lines, "a word " * 60], 0.25)):
        fit = measure_language_fit(texts, unknown, Analyzer(), len(texts))
        assert (fit.strange, fit.weight, fit.words) == (strange, 0.0, 40 / strange)


def test_language_fit_on_known_words_asks_questions_without_warning():
    fit = measure_language_fit(russian(80), encoder(whole, noise), Analyzer(), 80)
    assert (fit.strange, fit.questions, fit.warning) == (0.0, 80, None)
    few = measure_language_fit(russian(8), encoder(whole, noise), Analyzer(), 8)
    assert (few.questions, few.weight) == (0, 0.6)


def bag_of_words(dimensions):
    """Vectors that are alike where words are: the more dimensions, the less noise."""

    def vector(text):
        rows = [
            np.random.default_rng(zlib.crc32(word[:4].encode())).normal(size=dimensions)
            for word in re.findall(r"\w+", text.lower())
        ]
        total = np.sum(rows, axis=0)
        return total / np.linalg.norm(total)

    return vector


def test_embeddings_worse_than_bm25_in_another_language_have_at_most_a_weight_of_two_fifths():
    half_known = measure_language_fit(
        russian(200), encoder(whole, bag_of_words(11)), Analyzer(), 200
    )
    assert half_known.dense < half_known.bm25 < half_known.hybrid
    assert (half_known.weight, half_known.warning) == (0.4, None)
    # Letters in front of each text, which is Russian all the same.
    beside = [f"Python {text}" for text in russian(200)]
    fit = measure_language_fit(beside, encoder(whole, bag_of_words(8)), Analyzer(), 200)
    assert fit.weight == 0.4
    # The encoder does not know the language: what the questions say for it does not hold.
    unknown = measure_language_fit(
        russian(200), encoder(letters, bag_of_words(12)), Analyzer(), 200
    )
    assert (unknown.weight, unknown.hybrid, unknown.warning is None) == (0.0, unknown.bm25, False)


def test_lead_of_bm25_within_a_standard_error_does_not_limit_the_weight():
    fit = measure_language_fit(russian(200), encoder(whole, bag_of_words(12)), Analyzer(), 200)
    assert 0 < fit.bm25 - fit.dense < 0.0222
    assert fit.weight == 0.6


@pytest.mark.parametrize("pieces", [whole, letters])
def test_embeddings_better_than_bm25_keep_their_weight_without_a_warning(pieces):
    fit = measure_language_fit(russian(80), encoder(pieces, bag_of_words(14)), Analyzer(), 80)
    assert fit.dense >= fit.bm25
    assert (fit.weight, fit.warning) == (0.5, None)


def syllables(text):
    return [zlib.crc32(letter.encode()) for letter in text if letter.isalpha()]


@pytest.mark.parametrize(
    "text", ["대한민국은 동아시아의 한반도 남부에 위치한 공화국이다", "ነጻና በክብርና በመብትም እኩልነት ያለው"]
)
def test_syllables_count_as_two_letters(text):
    def signs(word):
        return [piece for letter in word for piece in syllables(letter + letter)]

    for pieces, strange in ((syllables, 0.0), (signs, 1.0)):
        fit = measure_language_fit([text] * 9, encoder(pieces, noise), Analyzer(), 9)
        assert fit.strange == strange


@pytest.mark.parametrize(
    "text",
    [
        "대한민국은 동아시아의 한반도 남부에 위치한 공화국이다. 수도는 서울특별시이다.",
        "ኢትዮጵያ በአፍሪካ ቀንድ የምትገኝ ሀገር ናት። ዋና ከተማዋ አዲስ አበባ ናት።",
        "इस पुस्तकालय में हजारों किताबें रखी हुई हैं और लोग यहाँ पढ़ने आते हैं।",
        "தமிழ்நாடு இந்தியாவின் தென்கோடியில் அமைந்துள்ள ஒரு மாநிலம் ஆகும்.",
        "తెలంగాణ భారతదేశంలోని ఒక రాష్ట్రం. ఇక్కడ చాలా మంది ప్రజలు నివసిస్తున్నారు.",
        "تقع مصر في الركن الشمالي الشرقي من قارة أفريقيا، وعاصمتها القاهرة.",
        "Россия является крупнейшим государством мира, столица находится в Москве.",
        "საქართველო არის ქვეყანა კავკასიაში. ხალხი ცხოვრობს ქალაქებსა და სოფლებში.",
    ],
)
def test_multilingual_model_knows_the_words_that_the_default_one_does_not(
    text, minilm, multilingual
):
    analyzer = Analyzer()
    assert is_unknown_language(minilm, analyzer, text)
    known = count_words(multilingual, analyzer, text)
    assert known.unknown <= 0.1 * known.words


def unigrams(characters):
    """The tokenizer of a SentencePiece model with the mark of a word, "a" and some characters."""
    pieces = ["<s>", "</s>", "<unk>", "▁", "▁a", *characters]
    scores = [0.0, 0.0, -20.0, -2.0, -3.0, *[-4.0] * len(characters)]
    tokenizer = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), 2, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return lambda text: tokenizer.encode(text).ids


def test_the_mark_of_a_word_is_not_unknown_to_a_tokenizer_of_sentencepiece():
    lines = [f"第{n}次防守丢分很多" for n in "一二三四五六七八九十"]
    characters = sorted(set("".join(lines)))
    for known, strange in ((characters, 0.0), (set(characters) - {"防"}, 1.0)):
        pieces = unigrams(known)
        assert pieces("第一次")[0] == 3
        fit = measure_language_fit(lines, encoder(pieces, noise), Analyzer(), len(lines))
        assert (fit.strange, fit.words) == (strange, 40)
    # The mark is no part of a word, which has two letters a piece here.
    words = unigrams([*"бвгд", "ло", "во"])
    assert len(words("лово")) == 3
    fit = measure_language_fit(["лово во " * 30], encoder(words, noise), Analyzer(), 1)
    assert fit.strange == 0.0


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Function that returns an encoder with a trained tokenizer, and a prompt before each text."""

    def get(kind, prompt):
        tokenizer = ModelTokenizer(save_tokenizer(kind, tmp_path_factory.mktemp(kind)))

        def tokenize(texts):
            return tokenizer.tokenize([prompt + text for text in texts])

        return SimpleNamespace(tokenize=tokenize)

    return get


@pytest.mark.parametrize("prompt", ["", "passage: "])
@pytest.mark.parametrize("kind", ["bert", "roberta", "roberta-space", "modernbert"])
def test_english_is_known_to_byte_pairs_as_to_word_pieces(kind, prompt, trained):
    model = trained(kind, prompt)
    counts = count_words(model, Analyzer(), " ".join(filter(str.isascii, LINES)))
    assert counts.words > 500
    assert counts.unknown < 0.05 * counts.words


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert"])
@pytest.mark.parametrize("script", ["Cyrillic", "Greek", "Thai", "Chinese", "Japanese", "Korean"])
def test_scripts_that_become_bytes_are_unknown_as_to_word_pieces(kind, script, trained):
    assert is_unknown_language(trained(kind, ""), Analyzer(), SCRIPTS[script])


def test_texts_of_two_kinds_have_weights_of_their_own(tmp_path, model):
    english = [f"The book number {n} is not in the house. It was there before." for n in range(90)]
    both = encoder(russian_letters, noise)
    fit = measure_language_fit([*english, *russian(80)], both, Analyzer(), 170)
    assert (fit.weight, fit.strange_weight, 0.2 < fit.strange < 0.8) == (0.6, 0.0, True)
    assert "some texts" in fit.warning
    assert "count 0 in hybrid search for queries like them" in fit.warning
    few = measure_language_fit([*english, *russian(4)], both, Analyzer(), 94)
    assert (few.weight, few.strange_weight, few.warning) == (0.6, None, None)
    with Index.create(tmp_path / "index", model) as index:
        with pytest.warns(UserWarning, match="the language of some texts"):
            index.add([*(f"w{n % 7} w{n % 5} w{n % 3}" for n in range(90)), *russian(60)])
        for query, alpha in (("w1 w4", 0.6), (russian(1)[0].partition(".")[0], 0.0)):
            assert index.search(query) == index.search(query, alpha=alpha)
            assert index.search(query) != index.search(query, alpha=0.3)


def test_language_fit_of_english_encoder_on_english_asks_no_questions():
    texts = ["The book of the road is not in the house. It was there before, as they said."] * 9
    fit = measure_language_fit(texts, encoder(whole, None), Analyzer(), 9)
    assert (fit.strange, fit.questions, fit.weight, fit.warning) == (0.0, 0, 0.6, None)


def test_a_sample_of_passages_does_not_depend_on_their_order():
    passages = [(bytes([n // 256, n % 256] * 8), f"text {n}") for n in range(700)]
    one, two = PassageSample(), PassageSample()
    for digest, text in passages:
        one.take(digest, text)
    for digest, text in reversed(passages):
        two.take(digest, text)
    assert one.texts == two.texts == [f"text {n}" for n in range(256)]


def test_language_fit_covers_documents_added_one_at_a_time(tmp_path):
    texts = russian(76)
    with Index.create(tmp_path / "index") as index, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for text in texts:
            index.add([text])
        found = index.info()["fit"]
        assert (found["strange"] > 0.25, found["questions"]) == (True, found["passages"])
        assert 76 / 1.5 < found["passages"] <= 76
        index.add(["one more"])
        assert index.info()["fit"] == found
    with Index.create(tmp_path / "whole") as index:
        with pytest.warns(UserWarning, match="does not know the language"):
            index.add(texts[: found["passages"]])
        assert index.info()["fit"] == found


def test_a_few_questions_are_no_evidence_for_an_encoder_that_does_not_know_the_words(tmp_path):
    with Index.create(tmp_path / "index") as index:
        with pytest.warns(UserWarning, match="does not know the language"):
            index.add(russian(15))
        fit = index.info()["fit"]
        assert (fit["questions"], fit["weight"]) == (0, 0.0)


def test_language_fit_of_imported_vectors_needs_their_encoder(tmp_path, tiny_models):
    model, shards = tmp_path / "model", tmp_path / "shards"
    shutil.copytree(tiny_models["bert"], model)
    encode_shards([Document(one, one) for one in russian(80)], shards, f"{model}::max-length=32")
    with pytest.warns(UserWarning, match="does not know the language"):
        import_documents(tmp_path / "one", shards)
    shutil.rmtree(model)
    import_documents(tmp_path / "two", shards)
    with Index.open(tmp_path / "one") as one, Index.open(tmp_path / "two") as two:
        assert (one.info()["fit"]["strange"] > 0.25, two.info()["fit"]) == (True, {})


@pytest.mark.parametrize(
    ("passages", "languages", "due"),
    [
        (100, {"english": 80, "german": 20}, False),
        (199, {"english": 160, "german": 39}, False),
        (200, {"english": 160, "german": 40}, True),
        (51, {"english": 41, "german": 10}, False),
        (50, {"english": 40, "german": 10}, True),
        (100, {"english": 71, "german": 29}, False),
        (100, {"english": 70, "german": 30}, True),
        (110, {"english": 80, "german": 20, "greek": 10}, False),
        (112, {"english": 80, "german": 20, "greek": 12}, True),
        # Of Japanese no language is counted.
        (115, {"english": 80, "german": 20}, True),
        (0, {}, False),
    ],
)
def test_language_fit_is_due_after_growth_or_changed_language_shares(passages, languages, due):
    measured = {"passages": 100, "languages": {"english": 80, "german": 20}, "weight": 0.6}
    assert is_due(measured, passages, languages) is due
    # Nothing was measured yet, or by a release that did not store the languages.
    for earlier in ({}, {"passages": 100, "weight": 0.6}):
        assert is_due(earlier, passages, languages) is (passages > 0)


def write_notes(folder, texts):
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_text(text)


def english(number):
    return [f"w{n % 7} w{n % 5} w{n % 3} w{n % 11}" for n in range(number)]


@pytest.fixture
def notes(tmp_path, model):
    """An index of a folder with English notes, and one afresh of the folder whenever called."""
    write_notes(tmp_path / "notes", english(30))
    made = count()

    def afresh():
        with Index.create(tmp_path / f"{next(made)}.index", model) as index:
            index.add(CorpusReader(tmp_path / "notes"), remember=True)
            return index.info()["fit"]

    with Index.create(tmp_path / "index", model) as index:
        index.add(CorpusReader(tmp_path / "notes"), remember=True)
        yield SimpleNamespace(index=index, folder=tmp_path / "notes", afresh=afresh)


def test_a_refresh_measures_again_and_tells_of_another_weight(notes):
    index, before = notes.index, notes.index.info()["fit"]
    assert (before["weight"], before["passages"]) == (0.6, 30)
    write_notes(notes.folder / "ru", russian(90))
    with pytest.warns(UserWarning, match="does not know the language of"):
        index.refresh()
    with pytest.warns(UserWarning, match="does not know the language of"):
        assert index.info()["fit"] == notes.afresh()
    assert index.info()["fit"]["strange_weight"] == 0.0
    shutil.rmtree(notes.folder / "ru")
    with pytest.warns(
        UserWarning, match="the texts have changed: .* was 0.6, and 0 for words .* and is now 0.6"
    ):
        index.refresh()
    assert index.info()["fit"] == before == notes.afresh()


def test_refresh_with_small_changes_measures_no_language_fit(notes, monkeypatch):
    monkeypatch.setattr("retriever.index.indexing.fit_measurement.measure_language_fit", None)
    (notes.folder / "1.txt").write_text("w5 w5 w5")
    (notes.folder / "2.txt").unlink()
    (notes.folder / "ru.txt").write_text(WORDS[0])
    assert notes.index.refresh().is_change
    assert not notes.index.refresh().is_change


@pytest.mark.parametrize("how", ["refresh", "add", "prune"])
def test_language_fit_follows_deletions_at_next_refresh_or_add(notes, how):
    write_notes(notes.folder / "ru", russian(90))
    with pytest.warns(UserWarning, match="does not know the language of"):
        notes.index.refresh()
    texts = [document for document in notes.index if "ru/" not in document.id]
    if how != "prune":
        notes.index.delete(
            [document.id for document in notes.index if document.id.startswith("ru/")]
        )
    changes = {
        "refresh": notes.index.refresh,
        "add": lambda: notes.index.add(["one more"]),
        "prune": lambda: notes.index.add(texts, prune=True),
    }
    with pytest.warns(
        UserWarning, match="the texts have changed: .* was 0.6, and 0 for words .* and is now 0.6"
    ):
        changes[how]()
    fit = notes.index.info()["fit"]
    assert (fit["weight"], fit["strange_weight"]) == (0.6, None)
    assert fit["passages"] == len(notes.index)


def test_an_encoder_that_is_gone_does_not_keep_a_refresh_from_deleting(tmp_path, tiny_models):
    model, folder = tmp_path / "model", tmp_path / "notes"
    shutil.copytree(tiny_models["bert"], model)
    write_notes(folder, english(8))
    with Index.create(tmp_path / "index", f"{model}::max-length=32") as index:
        index.add(CorpusReader(folder), remember=True)
    shutil.rmtree(model)
    for number in range(1, 8):
        (folder / f"{number}.txt").unlink()
    with Index.open(tmp_path / "index") as index:
        assert index.refresh().removed == 7
        assert (len(index), index.info()["fit"]["passages"]) == (1, 8)
