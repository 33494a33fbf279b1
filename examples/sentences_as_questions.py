"""Write a set of passages of any language, and sentences taken out of them as questions.

    python examples/sentences_as_questions.py SOURCE... --letters CYRILLIC --output FOLDER

SOURCE is what `retriever index` reads. Its texts become passages of whole paragraphs, and those in
other letters than `--letters`, the first word of the letters' names in Unicode, are left out, such
as what a translation leaves in English. A question is a sentence of a passage, which is removed
from it; its answer is the passage without it. Both are drawn at random with a fixed seed. FOLDER
gets `corpus.jsonl`, `queries.test.jsonl` and `qrels.test.tsv`, which `retriever eval qa` reads.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from retriever.documents import CorpusReader
from retriever.documents.sentences import SENTENCE_END

CHARACTERS, QUESTIONS, PASSAGES = 600, 300, 1500
# Letters of a question and of what is left; a Chinese character says as much as three letters.
LEAST, LEAST_LEFT, DENSE = 40, 120, ("CJK", "HIRAGANA", "KATAKANA", "HANGUL")


def passages(text: str) -> Iterator[str]:
    """Paragraphs, short ones together up to so many characters."""
    passage = ""
    for paragraph in filter(None, map(str.strip, re.split(r"\n\s*\n", text))):
        if passage and len(passage) + len(paragraph) > CHARACTERS:
            yield passage
            passage = ""
        passage = f"{passage}\n\n{paragraph}" if passage else paragraph
    if passage:
        yield passage


def share(text: str, letters: list[str]) -> float:
    """The share of letters of some scripts among all letters."""
    names = [unicodedata.name(letter, "").split(" ")[0] for letter in text if letter.isalpha()]
    return sum(name in letters for name in names) / max(len(names), 1)


def question(text: str, least: int, chance: random.Random) -> tuple[str, str] | None:
    """A sentence and the rest; None if a text has no sentence that leaves enough."""
    ends = [0, *(match.end() for match in SENTENCE_END.finditer(text)), len(text)]
    spans = [(a, b) for a, b in pairwise(ends) if sum(map(str.isalpha, text[a:b])) >= least]
    if not spans:
        return None
    start, stop = chance.choice(spans)
    rest = text[:start] + text[stop:]
    long_enough = sum(map(str.isalpha, rest)) >= LEAST_LEFT * least / LEAST
    return (" ".join(text[start:stop].split()), rest) if long_enough else None


def main() -> None:
    """Read the arguments and write the set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    parser.add_argument("--letters", nargs="+", default=["LATIN"])
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    chance = random.Random(38)
    least = LEAST // 3 if set(arguments.letters) & set(DENSE) else LEAST
    texts = {
        part for document in CorpusReader(arguments.sources) for part in passages(document.text)
    }
    corpus = sorted(sentence for sentence in texts if share(sentence, arguments.letters) >= 0.7)
    chance.shuffle(corpus)
    questions, rests = [], []
    for text in corpus[:PASSAGES]:
        pair = question(text, least, chance) if len(questions) < QUESTIONS else None
        rests.append(text if pair is None else pair[1])
        if pair:
            questions.append((pair[0], len(rests) - 1))
    if not questions:
        sys.exit("expected passages with two sentences, found none; check --letters")
    arguments.output.mkdir(parents=True)
    with (arguments.output / "corpus.jsonl").open("w", encoding="utf-8") as out:
        for number, text in enumerate(rests):
            out.write(json.dumps({"id": f"p{number}", "text": text}, ensure_ascii=False) + "\n")
    with (
        (arguments.output / "queries.test.jsonl").open("w", encoding="utf-8") as queries,
        (arguments.output / "qrels.test.tsv").open("w", encoding="utf-8") as qrels,
    ):
        for number, (text, passage) in enumerate(questions):
            record = {"id": f"q{number}", "text": text}
            queries.write(json.dumps(record, ensure_ascii=False) + "\n")
            qrels.write(f"q{number}\t0\tp{passage}\t1\n")
    print(f"{len(rests)} passages, {len(questions)} questions")


if __name__ == "__main__":
    main()
