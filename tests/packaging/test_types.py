"""A user's script that uses the whole API is accepted by `mypy --strict`."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path("tests/packaging/user_script.py")


def test_mypy_accepts_a_script_that_uses_the_whole_api():
    # The configuration only says which libraries have no types; the cache is that of `make lint`.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(SCRIPT)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_script_uses_every_name_but_the_errors_that_it_need_not_catch():
    import retriever

    text = (ROOT / SCRIPT).read_text()
    public = [name for name in dir(retriever) if _is_api(name, getattr(retriever, name))]
    assert len(public) > 30
    assert not [name for name in public if name not in text and not name.endswith("Error")]


def _is_api(name, value):
    return not name.startswith("_") and type(value).__name__ != "module"
