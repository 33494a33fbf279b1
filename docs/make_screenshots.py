"""Writes docs/images: the search page in both themes and on a phone, and a terminal.

    pip install selenium pillow && apt-get install chromium chromium-driver
    python docs/make_screenshots.py

The terminal asks the folder of examples/sample_folder.py, and the page an index of Python's
documentation. The script makes both in a temporary folder.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/images"
QUESTION = "how do I run a program and read its output"
QUERY = f"/?q={QUESTION.replace(' ', '+')}&f=kind%09kind+%3D+%22function%22"
# Name, address, width, height, theme.
PAGES = (
    ("page-light.png", QUERY, 1100, 760, "light"),
    ("page-dark.png", QUERY, 1100, 760, "dark"),
    ("page-phone.png", QUERY, 360, 640, "light"),
)
RECORDED = ["query", "what is paid for repairs", "--in", "home", "-k", "3"]
COLUMNS, LINE = 100, 19


def main() -> None:
    """Make an index, and the images."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        corpus = [ROOT / "examples/python_docs_corpus.py", "--output", "corpus.jsonl"]
        subprocess.run([sys.executable, *corpus], cwd=folder, check=True)
        sample = [ROOT / "examples/sample_folder.py", "home"]
        subprocess.run([sys.executable, *sample], cwd=folder, check=True)
        # The first query indexes the folder; the picture shows a later one.
        _retriever(RECORDED, folder)
        session = f"$ {_command_line(RECORDED)}\n{_retriever(RECORDED, folder)}"
        (IMAGES / "terminal.svg").write_text(terminal(session))
        _retriever(["index", "corpus.jsonl", "-i", "python-docs"], folder)
        command = [sys.executable, "-m", "cli.main", "serve", "python-docs", "--port", "0"]
        environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
        ) as service:
            try:
                assert service.stdout is not None
                address = re.search(r"http://127\.0\.0\.1:\d+", service.stdout.readline())
                assert address
                photograph(address[0])
            finally:
                service.terminate()


def photograph(address: str) -> None:
    """Write what a browser shows of the page."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(argument)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    browser = webdriver.Chrome(options=options, service=service)

    def settled(_: Any) -> bool:
        return bool(browser.find_elements("css selector", "#results[aria-busy=false] .hit"))

    try:
        for name, path, width, height, theme in PAGES:
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
            features = [{"name": "prefers-color-scheme", "value": theme}]
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            # Twice, so that the time that the page shows is not that of loading a model.
            for _ in range(2):
                browser.get(address + path)
                WebDriverWait(browser, 60).until(settled)
            browser.execute_script("document.activeElement.blur()")
            time.sleep(0.5)
            picture = Image.open(io.BytesIO(browser.get_screenshot_as_png()))
            picture.convert("RGB").quantize(200).save(IMAGES / name, optimize=True)
    finally:
        browser.quit()


def terminal(text: str) -> str:
    """An SVG of lines in a terminal; those that begin with `$` are what was typed."""
    lines = [
        part
        for line in text.splitlines()
        for part in textwrap.wrap(line, COLUMNS, drop_whitespace=False)
    ]
    elements = []
    for number, line in enumerate(lines):
        kind = ' class="typed"' if line.startswith("$") else ""
        elements.append(f'<text x="16" y="{28 + number * LINE}"{kind}>{escape(line)}</text>')
    width, height = 32 + round(COLUMNS * 7.9), 28 + len(lines) * LINE
    style = (
        "text { font: 13px ui-monospace, monospace; fill: #e6ebf2; white-space: pre } "
        ".typed { fill: #7db8f5 }"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="retriever in a terminal">\n<style>{style}</style>\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#12161c"/>\n'
        + "\n".join(elements)
        + "\n</svg>\n"
    )


def _command_line(command: list[str]) -> str:
    words = (f'"{word}"' if " " in word else word for word in command)
    return " ".join(["retriever", *words])


def _retriever(command: list[str], folder: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", *command],
        cwd=folder,
        env={
            "PYTHONPATH": str(ROOT),
            "PATH": "/usr/bin:/bin",
            "COLUMNS": str(COLUMNS),
            "RETRIEVER_CACHE": str(Path(folder) / "cache"),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


if __name__ == "__main__":
    main()
