"""Fills build/docs with all pages; `--after` puts their Markdown and llms.txt into build/site.

Pages keep their names. README.md becomes index.md, and links are those of one folder.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent
PAGES = ROOT / "build/docs"
SITE = ROOT / "build/site"
ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "benchmarks/README.md": "benchmark-scripts.md",
}
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def fill() -> None:
    """Copy the written pages; the pages of commands and of Python are made after it."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    shutil.copytree(FOLDER / "images", PAGES / "images")
    for page in [*FOLDER.glob("*.md"), *map(ROOT.joinpath, ELSEWHERE)]:
        name = ELSEWHERE.get(page.relative_to(ROOT).as_posix(), page.name)
        text = page.read_text("utf-8")
        (PAGES / name).write_text(_LINK.sub(partial(_moved, page.parent), text), "utf-8")


def _moved(folder: Path, link: re.Match[str]) -> str:
    path = (folder / link[1]).resolve().relative_to(ROOT)
    if path.is_relative_to("docs/images"):
        return f"](images/{path.name}"
    return "](" + ELSEWHERE.get(path.as_posix(), path.name)


def finish() -> None:
    """Write llms.txt, a list of all pages, and the pages that it names."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    for title, name in entries(config["nav"]):
        if name is None:
            lines += ["", f"## {title}"]
        else:
            shutil.copy(PAGES / name, SITE / name)
            lines.append(f"- [{title}]({name})")
    (SITE / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")


def entries(nav: list[dict[str, Any]]) -> Iterator[tuple[str, str | None]]:
    """Titles with their pages, None for a heading, in the order of the site."""
    for entry in nav:
        for title, below in entry.items():
            yield title, below if isinstance(below, str) else None
            if not isinstance(below, str):
                yield from entries(below)


if __name__ == "__main__":
    finish() if "--after" in sys.argv else fill()
