"""`examples/across_languages.py` asks in one language over passages of another."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples/across_languages.py"


def test_each_pair_with_the_first_language_has_a_row(tmp_path):
    vectors = tmp_path / "words.txt"
    vectors.write_text("cat 1 0\nKatze 0.9 0.1\ndog 0 1\nHund 0.1 0.9\n")
    for name, words in (("en", ("cat", "dog")), ("de", ("Katze", "Hund"))):
        folder = tmp_path / name
        folder.mkdir()
        for file, kind in (("corpus", "p"), ("queries.test", "q")):
            rows = [{"id": f"{kind}{row}", "text": word} for row, word in enumerate(words)]
            (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "qrels.test.tsv").write_text("q0 0 p0 1\nq1 0 p1 1\n")
    command = [sys.executable, SCRIPT, tmp_path / "en", tmp_path / "de", "--models", vectors]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    header, _, *rows = done.stdout.splitlines()
    assert header.startswith("| questions | passages | BM25 | ")
    cells = [[cell.strip() for cell in row.split("|")[1:6]] for row in rows]
    assert sorted(cells) == [
        ["de", "en", "0.0", "100.0", "100.0"],
        ["en", "de", "0.0", "100.0", "100.0"],
        ["en", "en", "100.0", "100.0", "100.0"],
    ]
