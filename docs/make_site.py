"""Fills build/docs with all pages; `--after` puts their Markdown and llms.txt into build/site.

Pages of `docs` keep their paths. README.md becomes index.md, and links follow. Files of `examples`
to which a page links are copied too.
"""

from __future__ import annotations

import os
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
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?")
# The site has a page for each command (make_cli.py).
_COMMANDS, _COMMAND = "reference/commands.md", "#retriever-"


def fill() -> None:
    """Copy the written pages; the pages of commands and of Python are made after it."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    shutil.copytree(FOLDER / "images", PAGES / "images")
    for page in [*FOLDER.rglob("*.md"), *map(ROOT.joinpath, ELSEWHERE)]:
        copy = PAGES / site_path(page)
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = page.read_text("utf-8")
        copy.write_text(_LINK.sub(partial(_site_link, page), text), "utf-8")


def site_path(page: Path) -> str:
    """Return the path of a page in the site."""
    path = page.relative_to(ROOT).as_posix()
    return ELSEWHERE.get(path, path.removeprefix("docs/"))


def _site_link(page: Path, link: re.Match[str]) -> str:
    """Return the beginning of a link of a page as it is in the site; copy an example there."""
    source = (page.parent / link[1]).resolve()
    target = site_path(source)
    anchor = link[2] or ""
    if target.startswith("examples/"):
        (PAGES / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, PAGES / target)
    if target == _COMMANDS and anchor.startswith(_COMMAND):
        target = f"reference/commands/{anchor.removeprefix(_COMMAND)}.md"
        anchor = ""
    return f"]({os.path.relpath(target, Path(site_path(page)).parent)}{anchor}"


def finish() -> None:
    """Write llms.txt, a list of all pages, and the pages that it names."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    for title, name in entries(config["nav"]):
        if name is None:
            lines += ["", f"## {title}"]
        else:
            (SITE / name).parent.mkdir(parents=True, exist_ok=True)
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
