"""Sums of blocks: any changed byte is found, when it is first read and not before."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes.errors import DamagedIndexError
from indexes.files import save_array
from indexes.folder import checksums as block_sums
from indexes.folder.checksums import BLOCK, UNGUARDED, BlockGuard, count_blocks, file_sums

FILE = Path("folder") / "array.npy"
SIZES = [0, 1, 7, 8, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 13, 40 * BLOCK + 1]


def sums_of(content):
    return block_sums.block_sums(content)


def noise(size):
    return np.random.default_rng(size).integers(0, 256, size, np.uint8)


def guard_of(array, sums=None):
    content = array.reshape(-1).view(np.uint8)
    return BlockGuard(FILE, array, sums_of(content) if sums is None else sums)


@pytest.mark.parametrize("size", SIZES)
def test_a_sum_is_that_of_the_words_of_its_block(size):
    content = noise(size).tobytes()
    expected = []
    for start in range(0, size, BLOCK):
        block = content[start : start + BLOCK].ljust(BLOCK, b"\0")
        words = [int.from_bytes(block[i : i + 8], "little") for i in range(0, BLOCK, 8)]
        expected.append(sum(words) % 2**64)
    assert sums_of(noise(size)).tolist() == expected
    assert len(expected) == count_blocks(size)


@given(st.integers(1, 5 * BLOCK), st.data(), st.integers(1, 255))
def test_any_changed_byte_changes_the_sum_of_its_block_and_no_other(size, data, flip):
    place = data.draw(st.integers(0, size - 1))
    content = noise(size)
    before = sums_of(content)
    content[place] ^= flip
    assert np.flatnonzero(sums_of(content) != before).tolist() == [place // BLOCK]
    guard = guard_of(content, before)
    with pytest.raises(DamagedIndexError, match=r"array\.npy: .*its content was altered"):
        guard.check_all()


@pytest.mark.parametrize("size", SIZES)
def test_a_file_is_summed_as_its_content_is(tmp_path, size):
    content = noise(size)
    (tmp_path / "plain").write_bytes(content.tobytes())
    np.testing.assert_array_equal(file_sums(tmp_path / "plain"), sums_of(content))
    numbers = content[: size // 8 * 8].view("<u4").reshape(-1, 2)
    save_array(tmp_path / "array.npy", numbers)
    expected = sums_of(numbers.reshape(-1).view(np.uint8))
    np.testing.assert_array_equal(file_sums(tmp_path / "array.npy"), expected)


def test_a_large_file_is_summed_in_bounded_memory(tmp_path):
    path = tmp_path / "plain"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    tracemalloc.start()
    try:
        assert len(file_sums(path)) == (64 << 20) // BLOCK
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@given(
    st.sampled_from([(np.uint8, ()), (np.int64, ()), (np.float32, (384,)), (np.int64, (2,))]),
    st.integers(1, 30),
    st.booleans(),
    st.data(),
)
def test_a_changed_byte_is_found_by_who_reads_its_row(form, blocks, altered, data):
    """Rows, ranges and many ranges, of rows that fill, divide or cross blocks."""
    dtype, columns = form
    row_bytes = int(np.dtype(dtype).itemsize * np.prod(columns, dtype=int))
    count = max(1, blocks * BLOCK // row_bytes - 3)
    content = noise(count * row_bytes)
    sums = sums_of(content)
    row = data.draw(st.integers(0, count - 1))
    if altered:
        content[row * row_bytes + data.draw(st.integers(0, row_bytes - 1))] ^= 0x10
    array = content.view(dtype).reshape(count, *columns)
    others = data.draw(st.lists(st.integers(0, count - 1), max_size=3))
    before, after = data.draw(st.integers(0, row)), data.draw(st.integers(row + 1, count))
    for way in ("rows", "range"):
        guard = guard_of(array, sums)
        for _ in range(2):
            try:
                if way == "rows":
                    guard.check_rows(np.array([*others, row], np.uint32))
                else:
                    guard.check_range(before, after)
            except DamagedIndexError:
                assert altered, way
            else:
                assert not altered, way


def test_each_block_is_compared_once(monkeypatch):
    summed = 0

    def counted(content):
        nonlocal summed
        found = sums_of_content(content)
        summed += len(found)
        return found

    sums_of_content = block_sums.block_sums
    array = noise(20 * BLOCK + 5).view(np.uint8)
    guard = guard_of(array)
    monkeypatch.setattr(block_sums, "block_sums", counted)
    guard.check_range(BLOCK, 3 * BLOCK)
    assert (summed, guard.complete) == (2, False)
    guard.check_range(BLOCK + 1, 3 * BLOCK - 1)
    guard.check_rows(np.array([BLOCK, 2 * BLOCK]))
    assert summed == 2
    guard.check_all()
    assert guard.complete
    summed = 0
    guard.check_all()
    guard.check_rows(np.arange(len(array)))
    assert summed == 0


def test_rows_that_do_not_exist_are_passed_over():
    guard = guard_of(noise(3 * BLOCK))
    guard.check_range(-5, 0)
    guard.check_range(3 * BLOCK, 4 * BLOCK)
    assert not guard.complete
    guard.check_range(-5, 4 * BLOCK)
    assert guard.complete


@pytest.mark.parametrize("shape", [(0,), (0, 384), (0, 2)])
def test_an_empty_array_has_nothing_to_compare(shape):
    guard = guard_of(np.empty(shape, np.float32))
    assert guard.complete
    guard.check_all()
    assert UNGUARDED.complete
    UNGUARDED.check_rows(np.array([10**12]))
    UNGUARDED.check_range(0, 10**12)


def test_the_sums_can_be_what_was_altered():
    def vouch():
        raise DamagedIndexError("sums.npy")

    guard = BlockGuard(FILE, noise(BLOCK), np.zeros(1, np.uint64), vouch)
    with pytest.raises(DamagedIndexError, match="sums"):
        guard.check_all()
