"""After random changes of files in several languages, a refresh gives the index of a new run.

RETRIEVER_SOAK_SECONDS says for how long the soak test goes on, 10 if it does not.
"""

from __future__ import annotations

import json
import os
import random
from itertools import count

import pytest

from retriever import CorpusReader, Index, SearchSettings
from tests.retriever.index.refresh_rounds import run_rounds, run_seeds

# Words of each language that tell it, and others.
WORDS = {
    "german": "der die das und ist nicht ein mit auf für Häuser Garten Bücher Straße",
    "english": "the of and is not a with on for that houses garden books dies road",
    "turkish": "bir ve bu için çok ama gibi daha kadar evler bahçe kitaplar yollar",
    "russian": "и не на что с по это как дома сады книги дороги",
}
JAPANESE = "今日は天気がいい。猫は庭で寝ている。図書館で本を借りた。電車は時間通りに来た。"
NAMES = [f"{folder}{name}" for folder in ("", "sub/") for name in "abcdef"]
QUERIES = ["dies", "Häuser", "the garden books", "kitaplar bahçe", "книги", "猫は庭で", "road 7"]


class Files:
    """A folder of notes and a file of records, which change at random."""

    def __init__(self, folder, seed):
        self.folder, self.records = folder / "notes", folder / "records.jsonl"
        self.chance = random.Random(seed)
        for name in NAMES[:4]:
            self.write(self.folder / f"{name}.txt")
        self.write_records()

    def text(self):
        """Words of one language, or of several in turn: more than one passage."""
        chance = self.chance
        if chance.random() < 0.2:
            return "".join(chance.choices(JAPANESE.split("。"), k=4))
        languages = chance.choices(list(WORDS), k=chance.choice([1, 1, 1, 3]))
        sentences = [chance.choices(WORDS[language].split(), k=28) for language in languages]
        return ".\n\n".join(f"{' '.join(words)} {chance.randint(0, 9)}" for words in sentences)

    def write(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text(), "utf-8")

    def write_records(self):
        ids = self.chance.sample(range(8), self.chance.randint(1, 8))
        lines = [json.dumps({"id": f"r{number}", "text": self.text()}) for number in ids]
        self.records.write_text("\n".join(lines), "utf-8")

    def change(self):
        """Write, change, delete or rename a file, or write the records again."""
        path = self.folder / f"{self.chance.choice(NAMES)}{self.chance.choice(['.txt', '.md'])}"
        kind = self.chance.choice(["write", "write", "remove", "rename", "records", "touch"])
        if kind == "write":
            self.write(path)
        elif kind == "records":
            self.write_records()
        elif kind == "touch" and path.exists():
            # Copies and checkouts set times of the past.
            moment = self.chance.randint(10**9, 10**9 + 5)
            os.utime(path, (moment, moment))
        elif path.exists() and len([*self.folder.rglob("*.*")]) > 1:
            if kind == "remove":
                path.unlink()
            else:
                self.chance.choice([path.with_name("g.txt"), self.folder / "h.md"]).write_bytes(
                    path.read_bytes()
                )
                path.unlink()

    @property
    def sources(self):
        return [self.folder, self.records]


def remember(index, files):
    index.add(CorpusReader(files.sources, on_empty="yield"), remember=True)


def answers(index):
    """Languages, and ids and scores of hits, with a fixed weight where the fit would decide."""
    metadata = {document.id: document.metadata for document in index}
    found = {"languages": index.info()["languages"], "metadata": metadata}
    for query in QUERIES:
        for mode, fusion in (("bm25", {}), ("hybrid", {"alpha": 0.5})):
            hits = index.search(query, SearchSettings(mode=mode, k=200), **fusion)
            found[query, mode] = [(hit.id, hit.passage, hit.score) for hit in hits]
    return found


def rounds(folder, seed):
    """Change files, refresh, and compare with a new index, for ever."""
    files = Files(folder, seed)
    with Index.create(folder / "kept.index") as index:
        remember(index, files)
        for number in count():
            for _ in range(files.chance.choice([1, 2, 5, 12])):
                files.change()
            index.refresh()
            if files.chance.random() < 0.1:
                index.compact()
            with Index.create(folder / f"{number}.index") as new:
                remember(new, files)
                assert answers(index) == answers(new), (seed, number)
            assert index.verify() == [], (seed, number)
            yield number


@pytest.mark.parametrize("seed", range(3))
def test_a_refresh_gives_the_languages_and_scores_of_a_new_index(tmp_path, fake_encoder, seed):
    run_rounds(rounds, tmp_path, seed, 4)


@pytest.mark.soak
def test_many_refreshes_give_the_languages_and_scores_of_a_new_index(tmp_path, fake_encoder):
    run_seeds(rounds, tmp_path, 20)
