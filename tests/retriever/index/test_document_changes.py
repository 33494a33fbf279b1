"""How a document differs from the stored one decides what indexing does with it."""

import pytest

from indexes import StoredVersion, metadata_json
from retriever import Document, PassageSettings
from retriever.errors import SourceError
from retriever.index.indexing.document_changes import detect_change, prepare_source
from retriever.index.indexing.passage_texts import content_hash

SETTINGS = PassageSettings()
STORED = Document("a", "text", "title", {"year": 1})


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (STORED, "unchanged"),
        (Document("a", "text", "title", {"year": 2}), "metadata"),
        (Document("a", "text", "other", {"year": 1}), "changed"),
        (Document("a", "other text", "title", {"year": 2}), "changed"),
        (Document("a", "", None, {"year": 1}), "empty"),
    ],
)
def test_a_document_is_compared_with_the_stored_one(document, kind):
    head = StoredVersion(content_hash(STORED, SETTINGS), metadata_json(STORED.metadata))
    change = detect_change(document, head, SETTINGS)
    assert change == (kind, content_hash(document, SETTINGS))


def test_a_document_without_a_stored_one_is_new_unless_it_is_empty():
    assert detect_change(STORED, None, SETTINGS).kind == "new"
    assert detect_change(Document("a", ""), None, SETTINGS).kind == "empty"


def test_a_document_that_cannot_be_stored_is_refused():
    with pytest.raises(SourceError, match="a\\\\ud800"):
        prepare_source(Document("a\ud800", "text"), SETTINGS, None)
