"""A query loads and enters no more than `size.LIMITS` allows.

Raise a limit only with a reason in the commit.
"""

import pytest

from tests.architecture.size import LIMITS, measured


@pytest.fixture(scope="module")
def sizes():
    return measured()


@pytest.mark.parametrize("name", LIMITS)
def test_no_larger_than_its_limit(sizes, name):
    assert sizes[name] <= LIMITS[name]
