"""The encoder of the workload and the index that is damaged, for the tests of crashes."""

import shutil
from pathlib import Path

import pytest

from tests.crash import workload


@pytest.fixture(scope="module")
def crash_encoder():
    """The encoder of the workload, in this process too."""
    with pytest.MonkeyPatch.context() as patch:
        workload.install(patch.setattr)
        yield


@pytest.fixture(scope="module")
def template(crash_encoder, tmp_path_factory):
    """The index of `make`, made once; copy it, and change the copy."""
    folder = tmp_path_factory.mktemp("template") / "index"
    workload.make(folder)
    return folder


@pytest.fixture
def index(template, tmp_path):
    """A copy of `template`, to damage."""
    return Path(shutil.copytree(template, tmp_path / "index"))
