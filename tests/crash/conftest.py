"""The encoder of the workload and the index that is damaged, for the tests of crashes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import workload
from structured import make


@pytest.fixture(scope="module")
def hash_encoder() -> Iterator[None]:
    """The encoder of the workload, in this process too."""
    with pytest.MonkeyPatch.context() as patch:
        workload.install(patch.setattr)
        yield


@pytest.fixture(scope="module")
def template(hash_encoder: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of `structured`, made once; copy it, and change the copy."""
    folder = tmp_path_factory.mktemp("template") / "index"
    make(folder)
    return folder


@pytest.fixture
def index(template: Path, tmp_path: Path) -> Path:
    """A copy of `template`, to damage."""
    return Path(shutil.copytree(template, tmp_path / "index"))
