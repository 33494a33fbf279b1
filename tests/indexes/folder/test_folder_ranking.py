"""Candidates of a folder do not depend on its segments."""

from __future__ import annotations

import pytest
from index_samples import document, make_index, vector_of

from indexes import Query
from indexes.folder.reader import FolderReader
from indexes.folder.writer import FolderWriter
from indexes.segments import maintenance

TEXT = "apple pear"


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_of_equal_scores_those_of_the_smaller_ids_are_candidates(tmp_path, depth):
    # The best is alone, so that at depth 2 one of the equal ones is the last that counts.
    folder = make_index(
        tmp_path / "x.index",
        [document("d", TEXT), document("b", TEXT), document("best", f"{TEXT} {TEXT}")],
        [document("c", TEXT), document("a", TEXT)],
    )
    query = Query(["apple"], vector_of(f"{TEXT} {TEXT}"))

    def candidates():
        reader = FolderReader(folder)
        with reader.view() as view:
            (found,) = view.ranking().candidates([query], "hybrid", depth)
            ids = sorted(view.documents_of(found.passages.tolist()).values())
        reader.close()
        return ids

    expected = sorted(["best", *"abcd"][:depth])
    assert candidates() == expected
    with FolderWriter(folder) as writer:
        maintenance.compact(writer)
    assert candidates() == expected
