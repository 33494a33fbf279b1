"""Files written in parts are those that NumPy writes at once; values once are NumPy's."""

import numpy as np
import pytest

from indexes.files import GrowingArray, each_once, save_array


@pytest.mark.parametrize("parts", [[], [0], [3], [2, 0, 5], [1] * 1200])
@pytest.mark.parametrize("columns", [(), (3,)])
def test_in_parts_or_at_once_the_bytes_are_the_same(tmp_path, parts, columns):
    whole = np.arange(sum(parts) * (columns or (1,))[0], dtype="<f4").reshape(-1, *columns)
    with GrowingArray(tmp_path / "parts.npy", whole.dtype, columns) as growing:
        start = 0
        for rows in parts:
            growing.append(whole[start : start + rows])
            start += rows
    save_array(tmp_path / "whole.npy", whole)
    assert (tmp_path / "parts.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_rows_of_another_shape_are_refused(tmp_path):
    with (
        pytest.raises(ValueError, match=r"expected rows of shape \(3,\)"),
        GrowingArray(tmp_path / "a.npy", np.dtype("<f4"), (3,)) as growing,
    ):
        growing.append(np.zeros((2, 4), np.float32))


@pytest.mark.parametrize("values", [[], [3], [2, 2, 1], [[5, 1], [5, -1], [9, 1]]])
def test_values_once_are_those_of_numpy(values):
    some = np.array(values, np.int64)
    np.testing.assert_array_equal(each_once(some), np.unique(some))
