"""A clock that runs backward between any two readings changes nothing."""

import time
from itertools import count

import pytest
from answers import assert_equal, contents, final
from workload import LIVED

from indexes.folder.store import snapshot_index
from indexes.folder.verify import verify
from retriever.index import Index

pytestmark = pytest.mark.usefixtures("crash_encoder")


def live(folder):
    """All operations, each seen by a reader that was opened before the others."""
    held = {}
    index = None
    for operation in LIVED:
        operation.perform(folder)
        held = operation.steps(held)[-1]
        index = index or Index.open(folder)
        assert contents(index) == held
        assert verify(folder) == []
    assert index is not None
    index.close()


def test_it_changes_nothing(tmp_path, monkeypatch):
    live(tmp_path / "straight")
    with monkeypatch.context() as patch:
        looks = count()

        def back():
            return 2e9 - 86_400.0 * next(looks)

        gmtime, localtime = time.gmtime, time.localtime
        strftime = time.strftime
        for name in ("time", "monotonic", "perf_counter"):
            patch.setattr(time, name, back)
        patch.setattr(time, "gmtime", lambda *at: gmtime(*(at or (back(),))))
        patch.setattr(time, "localtime", lambda *at: localtime(*(at or (back(),))))
        patch.setattr(
            time, "strftime", lambda form, *at: strftime(form, *(at or (localtime(back()),)))
        )
        live(tmp_path / "back")
        snapshot_index(tmp_path / "back", tmp_path / "copy")
        assert next(looks) > len(LIVED)
    assert_equal(final(tmp_path / "back"), final(tmp_path / "straight"))
    assert_equal(final(tmp_path / "copy"), final(tmp_path / "straight"))
