"""`examples/sets_with_names.py` writes sections as files, and judges those with the answers."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples/sets_with_names.py"
TEXT = "Bees\n\nMake honey.\n\nAnts\n\nMake hills."


def test_sections_become_files_named_in_each_style(tmp_path):
    marks = [[0, "heading", "Bees", 1], [TEXT.index("Ants"), "heading", "Ants", 1]]
    document = {"id": "insects", "title": "I", "text": TEXT, "outline": marks}
    place = {"query": "q0", "id": "insects", "start": TEXT.index("hills"), "stop": len(TEXT)}
    source = tmp_path / "set"
    source.mkdir()
    for name, row in (("corpus", document), ("places", place), ("queries", {"id": "q0"})):
        (source / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    expected = {
        "headings": ("ants.md", "# Ants\n\nMake hills.\n"),
        "alone": ("ants.md", "Make hills.\n"),
        "dates": ("2019-01-03.md", "# Ants\n\nMake hills.\n"),
        "pictures": ("IMG_0002.md", "# Ants\n\nMake hills.\n"),
    }
    for kind, (name, text) in expected.items():
        output = tmp_path / kind
        command = [sys.executable, SCRIPT, source, "--names", kind, "--output", output]
        subprocess.run(command, check=True, capture_output=True)
        assert (output / "notes/insects" / name).read_text() == text
        assert (output / "qrels.tsv").read_text() == f"q0 0 insects/{name} 1\n"
