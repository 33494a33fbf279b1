"""The sessions of how-to pages print what the pages show; see `docs/run_sessions.py`."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNNER = runpy.run_path(str(ROOT / "docs/run_sessions.py"))
PAGES = [
    page
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if page.parent.name in ("how-to", "tutorials")
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_sessions_of_a_page_print_what_it_shows(page, tmp_path):
    pytest.importorskip("layer_retriever_minilm")
    shell = RUNNER["Shell"](tmp_path)
    for block in RUNNER["BLOCK"].findall(page.read_text()):
        for command, expected in RUNNER["steps"](block):
            printed = shell.run(command)
            assert RUNNER["is_shown"](expected, printed), "\n".join([command, *printed])


def test_a_session_with_other_output_is_noticed():
    is_shown = RUNNER["is_shown"]
    assert is_shown(["a 0.1234", "...", "c"], ["a 0.9876", "b", "b", "c"])
    assert not is_shown(["a", "b"], ["a", "c"])
    assert not is_shown(["a"], ["a", "b"])
