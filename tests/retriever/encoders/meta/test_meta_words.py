"""Words, and the pieces of several tokenizers that belong to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.encoders.meta.sources import align, word_spans, word_types

TRICKY = (
    "The naïve café isn't open 😀👍🏽 yet...",
    "e\u0301te\u0301 \u00a0 cliché\u200dx",
    "東京タワー and 한국어, 3.5% of foo_bar!",
    "don’t U.S.A. e-mail's",
    "A",
    "",
    "  \t ",
    "🤷‍♀️",
    "İstanbul STRASSE ß",
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't go, naïve café!", ["Don't", "go", ",", "naïve", "café", "!"]),
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),
        ("東京 is 3.5%", ["東", "京", "is", "3", ".", "5", "%"]),
        ("yes 😀👍!", ["yes", "😀👍!"]),
        (" \t", []),
    ],
)
def test_words_are_runs_of_letters_and_runs_of_other_characters(text, expected):
    assert [text[start:stop] for start, stop in word_spans(text)] == expected


@given(st.text(max_size=40))
def test_words_are_all_but_white_space(text):
    spans = word_spans(text)
    assert spans == sorted(spans)
    covered = {place for start, stop in spans for place in range(start, stop)}
    assert len(covered) == sum(stop - start for start, stop in spans)
    assert covered == {place for place, one in enumerate(text) if not one.isspace()}


def test_types_are_equal_for_equal_words_in_lower_case():
    text = "The cat, the Cat"
    the, cat, comma, the_again, cat_again = word_types(text, word_spans(text))
    assert (the, cat) == (the_again, cat_again)
    assert len({the, cat, comma}) == 3


_SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), max_size=8)


@given(st.lists(st.tuples(_SPANS, _SPANS), max_size=4))
def test_a_piece_belongs_to_every_word_that_it_shares_a_character_with(texts):
    words, pieces = [], []
    for edges, raw in texts:
        cuts = sorted({place for start, size in edges for place in (start, start + size)})
        words.append(list(zip(cuts[::2], cuts[1::2], strict=False)))
        pieces.append([(start, start + size) for start, size in sorted(raw)])
    for one, spans, found in zip(words, pieces, align(words, pieces), strict=True):
        expected = [
            (piece, word)
            for piece, (start, stop) in enumerate(spans)
            for word, (first, last) in enumerate(one)
            if max(start, first) < min(stop, last)
        ]
        assert list(zip(found.pieces.tolist(), found.words.tolist(), strict=True)) == expected


@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "xlnet", "minilm"])
def test_every_piece_of_a_tokenizer_is_in_the_word_it_was_made_of(name, folders, minilm):
    """Accents that are stripped, characters that are several bytes, contractions, emoji."""
    from retriever.encoders import find_model
    from retriever.encoders.transformer.backbone import Backbone

    folder = "all-MiniLM-L6-v2" if name == "minilm" else str(folders(name))
    backbone = Backbone(find_model(folder), "cpu")
    ids, offsets = backbone.tokenize_with_offsets(TRICKY)
    assert ids == backbone.tokenize(TRICKY)
    words = [word_spans(text) for text in TRICKY]
    each = zip(TRICKY, words, offsets, align(words, offsets), strict=True)
    for text, spans, pieces, found in each:
        for piece, (start, stop) in enumerate(pieces):
            touched = {place for place in range(start, stop) if not text[place].isspace()}
            owners = found.words[found.pieces == piece].tolist()
            covered = {place for word in owners for place in range(*spans[word])}
            assert touched <= covered, (text, piece)
            assert bool(owners) == bool(touched)
        if name != "albert":
            # Every letter has a piece: only characters that a tokenizer drops have none.
            lettered = [row for row, span in enumerate(spans) if text[slice(*span)].isalpha()]
            assert set(lettered) <= set(found.words.tolist())
