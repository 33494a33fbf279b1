"""Print how many texts of a language are told rightly, by function words alone and with n-grams.

    python examples/languages_told.py LANGUAGE FILE... [--limit N]

FILE is JSON lines with a field `text`, or a manual page as Debian packs it (`tr.1.gz`), whose
paragraphs of 150 letters and more are texts. A row is for whole texts, and one for the first six
words of each sentence of six words and more. At most `--limit` of each are drawn with a fixed seed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
from pathlib import Path

from retriever.documents import Analyzer, AnalyzerSettings
from retriever.documents.sentences import SENTENCE_END

LETTERS, WORDS = 150, 6
FONTS = re.compile(r"[.'](B|I|BR|IR|RB|RI|BI|IB|SM)\s+")
ESCAPES = re.compile(r"\\f(?:\[\w*\]|\(..|.)|\\\[[^]]*\]|\\[(*]..|\\[&/,%:|^]")


def paragraphs(page: str) -> list[str]:
    """The paragraphs of a manual page, without its macros."""
    lines = []
    for line in page.splitlines():
        text = FONTS.sub("", line)
        lines.append("\0" if text.startswith((".", "'")) or not text.strip() else text)
    text = ESCAPES.sub("", "\n".join(lines)).replace(r"\-", "-").replace('"', "")
    return [" ".join(part.split()) for part in text.split("\0")]


def texts_of(path: Path) -> list[str]:
    """The texts of a file."""
    if path.suffix != ".gz":
        lines = path.read_text("utf-8").splitlines()
        return [json.loads(line)["text"] for line in lines]
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
        texts = paragraphs(file.read())
    return [text for text in texts if sum(map(str.isalpha, text)) >= LETTERS]


def beginnings(texts: list[str]) -> list[str]:
    """The first words of each sentence that has so many."""
    sentences = (part.split() for text in texts for part in SENTENCE_END.split(text))
    return [" ".join(words[:WORDS]) for words in sentences if len(words) >= WORDS]


def main() -> None:
    """Read the arguments and print a row for whole texts and one for beginnings of sentences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("language")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--limit", type=int, default=1200)
    arguments = parser.parse_args()
    chance = random.Random(1)
    analyzers = [Analyzer(AnalyzerSettings(detection=name)) for name in ("words", "ngrams")]
    # Pages that are links to others are read once.
    texts = list(dict.fromkeys(text for path in arguments.files for text in texts_of(path)))
    for name, whole in (("texts", texts), ("six words", list(dict.fromkeys(beginnings(texts))))):
        sample = chance.sample(whole, min(len(whole), arguments.limit))
        rights = [
            sum(arguments.language in analyzer.languages(text) for text in sample)
            for analyzer in analyzers
        ]
        before, after = (f"{100 * right / max(len(sample), 1):.1f}%" for right in rights)
        print(f"{arguments.language} {name}: {len(sample)}, {before} by words, {after} by n-grams")


if __name__ == "__main__":
    main()
