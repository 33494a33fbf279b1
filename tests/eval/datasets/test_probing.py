import random
from collections import Counter
from itertools import count, pairwise, product

import pytest

from eval.datasets.classification import read_probing
from eval.datasets.probing import (
    Instance,
    Sample,
    balanced_set,
    make_probing,
    make_sentence,
    split_tokens,
)
from eval.settings import ProbingSettings
from retriever.errors import SourceError

BINS = {"0": (5, 8), "1": (9, 12), "2": (13, 16), "3": (17, 20), "4": (21, 25), "5": (26, 28)}
FILLERS = [f"f{number}" for number in range(2000)]
TARGETS = ["".join(word) for word in product("bcdfghjklmnp", "aeiou", "nr", "x")]


def filled(chance, length):
    return " ".join(chance.sample(FILLERS, length))


@pytest.fixture(scope="module")
def lengths():
    """250 sentences of each bin, and some that are too short or too long."""
    chance = random.Random(0)
    texts = [
        filled(chance, chance.randint(least, most))
        for least, most in BINS.values()
        for _ in range(250)
    ]
    return [*texts, *(filled(chance, length) for length in (1, 4, 29, 40) * 5)]


@pytest.fixture(scope="module")
def words():
    """Sentences of 2,000 frequent words, each with one of 120 rarer words; some occur twice."""
    chance = random.Random(0)
    fillers = FILLERS * 30
    chance.shuffle(fillers)
    texts = []
    for number in range(2500):
        target = TARGETS[number % len(TARGETS)]
        added = [target, target.upper()] if number % 7 == 0 else [target]
        texts.append(" ".join([*fillers[number * 24 : (number + 1) * 24], *added]))
    return texts


@pytest.fixture(scope="module")
def texts():
    """1,600 sentences with punctuation and a word that comes twice in a row."""
    chance = random.Random(1)
    return [
        " ".join([*chance.sample(FILLERS, chance.randint(4, 9)), ",", "f1", "F1", "end", "."])
        for _ in range(1600)
    ]


@pytest.fixture
def make(tmp_path):
    """Return a function that makes sets in a new folder each time."""
    numbers = count()

    def make(texts, *tasks, seed=0, words=100):
        folder = tmp_path / f"sets-{next(numbers)}"
        return make_probing(lambda: iter(texts), folder, ProbingSettings(tasks, words, seed))

    return make


def lines(probing_set):
    return [
        (split, i.label, i.text)
        for split, instances in probing_set.splits.items()
        for i in instances
    ]


def check_balance(probing_set, labels):
    sizes = {split: len(instances) for split, instances in probing_set.splits.items()}
    assert list(sizes) == ["tr", "va", "te"]
    assert sizes["tr"] == 10 * sizes["va"] == 10 * sizes["te"] >= 1000
    for split, instances in probing_set.splits.items():
        counts = Counter(instance.label for instance in instances)
        assert len(counts) == probing_set.labels == labels
        assert set(counts.values()) == {sizes[split] // labels}
    texts = [text.casefold() for _, _, text in lines(probing_set)]
    assert len(set(texts)) == len(texts)


class TestTokens:
    @pytest.mark.parametrize(
        ("text", "tokens"),
        [
            ("He said: don't!", ["He", "said", ":", "don't", "!"]),
            ("(a 3.5-fold, odd...)", ["(", "a", "3.5-fold", ",", "odd", "...", ")"]),
            ("it 's n't it ?", ["it", "'s", "n't", "it", "?"]),
            ("'quoted'", ["'", "quoted", "'"]),
            ("-- \t ?!", ["--", "?", "!"]),
            ("cafe\u0301, na\u00efve", ["cafe\u0301", ",", "na\u00efve"]),
            (" ", []),
        ],
    )
    def test_split_tokens_separates_punctuation_around_a_word(self, text, tokens):
        assert list(split_tokens(text)) == tokens


class TestSample:
    def test_sample_keeps_the_same_distinct_sentences_in_any_order(self):
        chance = random.Random(0)
        texts = [filled(chance, 6) for _ in range(300)]
        sentences = [make_sentence(text, 0) for text in texts]
        expected = sorted({sentence.rank for sentence in sentences})[:20]
        for _ in range(3):
            chance.shuffle(sentences)
            sample = Sample(20)
            for sentence in sentences + sentences[:50]:
                sample.offer(sentence)
            assert [sentence.rank for sentence in sample.sentences()] == expected

    def test_random_numbers_of_a_sentence_depend_on_seed_and_lowercased_tokens(self):
        first, same = make_sentence("A b c d e.", 1), make_sentence("a B c d e .", 1)
        assert (first.rank, first.order, first.choice) == (same.rank, same.order, same.choice)
        assert make_sentence("a b c d e .", 2).rank != first.rank


@pytest.mark.parametrize(
    ("labels", "available", "train", "held_out"),
    [
        (2, 60_000, 50_000, 5_000),
        (2, 59_999, 49_990, 4_999),
        (2, 600, 500, 50),
        (6, 20_100, 16_667, 1_667),
        (6, 20_000, 16_660, 1_666),
        (1000, 12, 10, 1),
    ],
)
def test_balanced_set_has_published_split_sizes_or_their_ratio(labels, available, train, held_out):
    classes = {str(label): [Instance(0, str(label), "")] * available for label in range(labels)}
    splits = balanced_set("task", classes, "").splits
    sizes = {split: len(instances) for split, instances in splits.items()}
    assert sizes == {"tr": train * labels, "va": held_out * labels, "te": held_out * labels}
    rarer = classes | {"0": classes["0"][:11]}
    with pytest.raises(SourceError, match="found 11 of 0"):
        balanced_set("task", rarer, "")


class TestSentLen:
    def test_sentlen_labels_are_bins_of_token_counts(self, make, lengths):
        result = make(lengths, "sentlen")
        assert (result.texts, result.sentences) == (1520, 1500)
        (probing_set,) = result.sets
        check_balance(probing_set, 6)
        for _, label, text in lines(probing_set):
            least, most = BINS[label]
            assert least <= len(text.split()) <= most
            assert text in lengths


class TestWordContent:
    def test_wc_labels_are_words_from_rank_2001_and_occur_once_per_sentence(self, make, words):
        (probing_set,) = make(words, "wc").sets
        check_balance(probing_set, 100)
        counts = Counter(token for text in words for token in text.split())
        ranked = sorted(counts, key=lambda token: (-counts[token], token))[2000:]
        expected = [token for token in ranked if token.islower() and token.isalpha()][:100]
        assert {label for _, label, _ in lines(probing_set)} == set(expected)
        assert probing_set.facts == {
            "words": 100,
            "ranks": [2001, ranked.index(expected[-1]) + 2001],
        }
        for _, label, text in lines(probing_set):
            assert [t.lower() for t in text.split() if t.lower() in expected] == [label]


class TestBigramShift:
    def test_bshift_exchanges_two_adjacent_words_in_half_of_the_sentences(self, make, texts):
        (probing_set,) = make(texts, "bshift").sets
        check_balance(probing_set, 2)
        corpus, sources = set(texts), []
        for _, label, text in lines(probing_set):
            tokens = text.split()
            swapped = [
                (place, " ".join([*tokens[:place], b, a, *tokens[place + 2 :]]))
                for place, (a, b) in enumerate(pairwise(tokens))
                if a.lower() != b.lower()
            ]
            origins = [(place, source) for place, source in swapped if source in corpus]
            if label == "O":
                assert text in corpus
                sources.append(text)
            else:
                assert text not in corpus
                ((place, source),) = origins
                assert place >= 1
                assert {tokens[place], tokens[place + 1]}.isdisjoint({",", "."})
                sources.append(source)
        assert len(set(sources)) == len(sources)

    def test_bshift_leaves_out_sentences_with_quotes_or_without_exchange(self, make, texts):
        quoted = [f'{text} "' for text in texts] + ["one same same same ."] + ["a , b , c ."]
        with pytest.raises(SourceError, match="found 0 of"):
            make(quoted, "bshift")
        (with_some,) = make([*texts, *quoted], "bshift").sets
        assert not {text for _, _, text in lines(with_some)} & set(quoted)

    def test_bshift_drops_exchanges_that_give_a_corpus_sentence(self, make, texts):
        (probing_set,) = make(texts, "bshift").sets
        shifted = [text for _, label, text in lines(probing_set) if label == "I"]
        assert probing_set.facts == {"dropped": 0}
        (again,) = make([*texts, *(text.upper() for text in shifted[:20])], "bshift").sets
        assert again.facts["dropped"] >= 20
        assert not {text for _, label, text in lines(again) if label == "I"} & set(shifted[:20])


def test_probing_sets_depend_on_seed_and_sentences_but_not_on_order(make, lengths, words):
    def drawn(texts, task, seed=0):
        return lines(make(texts, task, seed=seed).sets[0])

    # Word ranks follow frequency in the corpus, so repeated texts would change them.
    for task, texts, again in (
        ("sentlen", lengths, lengths + lengths[:100]),
        ("wc", words, words),
        ("bshift", lengths, lengths + lengths[:100]),
    ):
        first = drawn(texts, task)
        assert drawn(random.Random(5).sample(again, len(again)), task) == first
        assert drawn(texts, task, seed=1) != first


def test_a_corpus_that_is_too_small_is_refused(make, lengths, words):
    rarer = [*words, " ".join(["rare", *FILLERS[:9]])]
    small = (
        r"least 204 .* of each of 6 labels, found 50 of 5; name a larger corpus \(label 0 is of 5 "
    )
    for texts, task, number, message in (
        (lengths[:1300], "sentlen", 2, small),
        (words, "wc", 1000, r"expected 1,000 words .* found 1\d\d among 2,"),
        (rarer, "wc", 121, r"at least 12 distinct .* fewer words with --words"),
        (words, "wc", 50, r"at least 24 distinct .* name a larger corpus$"),
        (["too short", "this one too"], "wc", 2, "texts of 5 to 28 tokens, .* none among 2"),
    ):
        with pytest.raises(SourceError, match=message):
            make(texts, task, words=number)


def test_written_probing_sets_are_read_back(make, lengths):
    result = make(lengths, "sentlen", "bshift")
    assert [path.name for path in result.files] == ["sentence_length.txt", "bigram_shift.txt"]
    for path, probing_set in zip(result.files, result.sets, strict=True):
        task = read_probing(path)
        assert task.name == probing_set.task
        for short, split in (("tr", "train"), ("va", "dev"), ("te", "test")):
            texts = task.splits[split]
            assert list(zip(texts.labels, texts.left, strict=True)) == [
                (instance.label, instance.text) for instance in probing_set.splits[short]
            ]
