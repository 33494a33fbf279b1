"""The project is no larger than `size.LIMITS` allows: who raises one says why in its commit."""

import pytest
from size import LIMITS, measured


@pytest.fixture(scope="module")
def sizes():
    return measured()


@pytest.mark.parametrize("name", LIMITS)
def test_no_larger_than_its_limit(sizes, name):
    assert sizes[name] <= LIMITS[name]
