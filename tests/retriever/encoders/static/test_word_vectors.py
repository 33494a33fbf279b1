"""Files of word vectors, written here byte by byte, are read to what was written."""

import gzip
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retriever.encoders.static.files import read_word_vectors
from retriever.errors import SourceError

WORDS = ["the", "Naïve", "new-york", "3.5", "日本"]
VECTORS = np.array(
    [[0.5, -1, 2e-3], [1, 2, 3], [-0.25, 0, 1e5], [7, 8, 9], [0.125, 0.5, -0.5]], np.float32
)


def _lines(words, vectors):
    return "".join(
        f"{word} {' '.join(repr(float(number)) for number in row)}\n"
        for word, row in zip(words, vectors, strict=True)
    ).encode()


def _header(words, vectors):
    return f"{len(words)} {vectors.shape[1]}\n".encode()


def _binary(words, vectors, end=b"\n"):
    return _header(words, vectors) + b"".join(
        word.encode() + b" " + row.astype("<f4").tobytes() + end
        for word, row in zip(words, vectors, strict=True)
    )


ODD = np.frombuffer(b"dddAeeeB", "<f4")[None]
FORMATS = {
    "glove": _lines,
    "word2vec-text": lambda words, vectors: _header(words, vectors) + _lines(words, vectors),
    "word2vec-binary": _binary,
    "word2vec-binary without line breaks": lambda *parts: _binary(*parts, end=b""),
}


@pytest.fixture
def read(tmp_path):
    def read(content, name="vectors"):
        path = tmp_path / name
        path.write_bytes(content)
        return read_word_vectors(path)

    return read


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzipped"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_told_by_its_content_and_read_exactly(read, name, zipped):
    content = FORMATS[name](WORDS, VECTORS)
    found = read(gzip.compress(content) if zipped else content)
    assert found.words == WORDS
    assert found.vectors.dtype == np.float32
    assert found.vectors.flags.c_contiguous
    np.testing.assert_array_equal(found.vectors, VECTORS)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_written_word_vectors_are_read_back_equal(read, data):
    words = data.draw(
        st.lists(
            st.text(st.characters(categories=["L", "N", "P", "M"]), min_size=1, max_size=6),
            min_size=1,
            max_size=20,
            unique=True,
        )
    )
    dimensions = data.draw(st.integers(2, 6))
    numbers = st.floats(-1e6, 1e6, width=32)
    rows = st.lists(numbers, min_size=dimensions, max_size=dimensions)
    vectors = np.array(
        data.draw(st.lists(rows, min_size=len(words), max_size=len(words))), np.float32
    )
    for name in ("word2vec-text", "word2vec-binary", "glove"):
        found = read(FORMATS[name](words, vectors))
        assert found.words == words
        np.testing.assert_array_equal(found.vectors, vectors)


@pytest.mark.parametrize(
    ("content", "words", "vectors"),
    [
        (
            b"the 1 2 3\n. . . 4 5 6\nat name@domain.com 7 8 9\nlast\t1\t1\t1 \r\n",
            ["the", ". . .", "at name@domain.com", "last"],
            [[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 1, 1]],
        ),
        (b". . 1 2 3\nthe 4 5 6\nof 7 8 9\n", [". .", "the", "of"], np.arange(1, 10).reshape(3, 3)),
        # The first of equal words stands.
        (b"a 1 2\nb 3 4\na 5 6\na 7 8\n", ["a", "b"], [[1, 2], [3, 4]]),
        # No text can hold these.
        (b"a 1 2\n\xff\xfe 3 4\n 5 6\n\xc2\xa0 7 8\n\nb 9 10", ["a", "b"], [[1, 2], [9, 10]]),
        (b" 5 6\na 1 2\nb 3 4\n", ["a", "b"], [[1, 2], [3, 4]]),
        # Numbers that look like text.
        (_binary(["0"], np.array([[570946.0, 65601.0]])), ["0"], [[570946.0, 65601.0]]),
        (_binary(["0"], ODD), ["0"], ODD),
    ],
)
def test_odd_words_and_numbers_are_read(read, content, words, vectors):
    found = read(content)
    assert found.words == words
    np.testing.assert_array_equal(found.vectors, vectors)


@pytest.mark.parametrize(
    ("content", "where", "said"),
    [
        (b"a 1 2 3\nb 1 2\nc 1 2 3\n", ":2:", "a word and 3 numbers, found 2"),
        (b"a 1 2\nb 1 2 3\nc 1 2 3\n", ":1:", "a word and 3 numbers, found 2"),
        (b"a 1 2 3\nb 1 2 3 4\nc 1 2 3\n", ":2:", "a word and 3 numbers, found 4"),
        (b"a 1 2 3\nb 1 x 3\nc 1 2 3\n", ":2:", "a word and 3 numbers, found 1 at the end of 4"),
        (b"a 1 2 3\nb\nc 1 2 3\n", ":2:", "found 0"),
        (b"3 3\na 1 2 3\nb 1 2\nc 1 2 3\n", ":3:", "a word and 3 numbers, found 2"),
        (b"a 1 2\nb nan 3\n", ":2:", "expected finite numbers, found nan"),
        (b"a 1 2\nb 1e999 3\n", ":2:", "expected finite numbers, found inf"),
        (b"0 3\n", ":1:", "found 0 and 3"),
        (b"3 0\n", ":1:", "found 3 and 0"),
        (b"3 2\na 1 2\nb 3 4\n", ":", "expected 3 words as its first line says, found 2"),
        (b"999999999999 3\na 1 2 3\n", ":", "found 1"),
        (b"1 2\na 1 2\nb 3 4\n", ":", "expected 1 words as its first line says, found more"),
        (b"some words of a text\nand others\n", ":1:", "expected a word and its vector"),
        (b"", ":1:", "expected a word and its vector"),
        (b"\xff\xff 1 2\n", ":", "holds no word"),
        *(
            (magic + b"\x01" * 60, ":", "other binary data")
            for magic in (struct.pack("<i", 793712314), b"PK\x03\x04", b"\x80\x04\x95", b"\x00")
        ),
        (_binary(WORDS, VECTORS)[:-9], ": entry 5:", "download it again"),
        (_binary(WORDS, VECTORS) + b"more", ":", "found more"),
        (_binary(WORDS, VECTORS * np.float32(np.nan)), ": entry 1:", "found nan"),
    ],
)
def test_a_malformed_file_is_refused_in_one_line_that_says_where(read, content, where, said):
    with pytest.raises(SourceError) as caught:
        read(content)
    message = str(caught.value)
    assert f"vectors{where}" in message
    assert said in message
    assert "\n" not in message


def test_truncated_gzip_and_a_missing_file_are_named(read, tmp_path):
    with pytest.raises(SourceError, match="ends too early"):
        read(gzip.compress(_lines(WORDS, VECTORS))[:-20])
    with pytest.raises(SourceError, match="no such file"):
        read_word_vectors(tmp_path / "absent")
