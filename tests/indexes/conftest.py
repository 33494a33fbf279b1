"""Fixtures shared by the tests of stores."""

from contextlib import closing

import pytest

from indexes.folder.view import FolderReader


@pytest.fixture
def reader(index):
    """A reader of the index folder of the fixture `index`."""
    with closing(FolderReader(index)) as reader:
        yield reader
