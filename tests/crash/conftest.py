"""The encoder of the workload, for the tests of crashes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import workload


@pytest.fixture(scope="module")
def hash_encoder() -> Iterator[None]:
    """The encoder of the workload, in this process too."""
    with pytest.MonkeyPatch.context() as patch:
        workload.install(patch.setattr)
        yield
