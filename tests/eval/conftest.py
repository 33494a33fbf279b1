"""Fixtures and helpers that tests of evaluations share."""

from collections import Counter
from xml.etree import ElementTree

import pytest

from retriever.encoders.transformer.backbone import Backbone
from retriever.encoders.transformer.numpy_engine import NumPyEngine
from retriever.encoders.transformer.openvino_engine import OpenVINOEngine


def texts_of(path):
    """Return the texts of an SVG file."""
    root = ElementTree.fromstring(path.read_text())
    assert root.tag.endswith("}svg")
    texts = [element for element in root.iter() if element.tag.endswith("}text")]
    return ["".join(element.itertext()).strip() for element in texts]


@pytest.fixture
def passes(monkeypatch):
    """Count how often each list of word pieces is run through a model."""
    counted = Counter()
    original = Backbone.run

    def run(self, batch, layers, visit):
        rows = zip(batch.inputs["input_ids"].tolist(), batch.lengths.tolist(), strict=True)
        counted.update(tuple(ids[:length]) for ids, length in rows)
        original(self, batch, layers, visit)

    def count(engine):
        run_engine = engine.run

        def run(self, ids, types=None):
            counted.update(map(tuple, ids))
            return run_engine(self, ids, types)

        monkeypatch.setattr(engine, "run", run)

    monkeypatch.setattr(Backbone, "run", run)
    count(NumPyEngine)
    count(OpenVINOEngine)
    return counted
