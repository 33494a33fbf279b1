"""`examples/code_search_set.py` asks docstrings of files without them."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples/code_search_set.py"
MODULE = '''"""A module."""

def add(a, b):
    """Add two numbers and return their sum. More."""
    return a + b

def short():
    """Too short."""
'''


def test_docstrings_become_questions_and_leave_the_files(tmp_path):
    (tmp_path / "lib/sub").mkdir(parents=True)
    (tmp_path / "lib/sub/m.py").write_text(MODULE)
    output = tmp_path / "set"
    command = [sys.executable, SCRIPT, "--output", output, "--source", tmp_path / "lib"]
    subprocess.run(command, check=True)
    [query] = map(json.loads, (output / "queries.jsonl").read_text().splitlines())
    assert query == {"id": "q0", "text": "Add two numbers and return their sum."}
    assert (output / "qrels.tsv").read_text() == ("query-id\tcorpus-id\tscore\nq0\tsub/m.py\t1\n")
    text = (output / "files/sub/m.py").read_text()
    assert "numbers" not in text
    assert "return a + b" in text
