"""Outlines: what stands where in the text of a document."""

from retriever.documents import Assembler, Fields, Record
from retriever.documents.outline import Mark


def test_the_outline_of_a_record_is_that_of_its_document():
    outline = (Mark(0, "page", "iv"), Mark(9, "heading", "Methods", 1))
    record = Record(1, "a.pdf", {"text": "Contents\nMethods\nWe"}, outline=outline)
    assert Assembler(Fields()).document(record).outline == outline
