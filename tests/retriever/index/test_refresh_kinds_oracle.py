"""After random changes of files of many kinds, a refresh gives the index of a new run.

RETRIEVER_SOAK_SECONDS says for how long the soak test goes on, 10 if it does not.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import tarfile
import zipfile
from email.message import EmailMessage
from itertools import count

import pytest

from retriever import CorpusReader, Index, SearchSettings
from tests.retriever.documents import file_samples as samples
from tests.retriever.index.refresh_rounds import run_rounds, run_seeds

WORDS = [
    "bees",
    "honey",
    "hive",
    "wax",
    "queen",
    "garden",
    "house",
    "roof",
    "cellar",
    "key",
    "ship",
    "sail",
    "wind",
    "coal",
    "mill",
]
NAMES = [
    *("a.eml", "sub/b.eml", "box.mbox", "x.zip", "sub/y.tar.gz", "t.csv", "r.jsonl", "n.nfo"),
    *("p.html", "c.py", "sub/d.md", "e.pdf", "f.docx", "g.xlsx", "h.ini", "i.json"),
]
RULES = {
    "include": ["*", "*.csv", "*.jsonl"],
    "exclude": ["skip*"],
    "as_kinds": ["markdown=*.nfo"],
    "archives": True,
    "on_error": "skip-files",
}


class Folder:
    """A folder of files of many kinds that change at random."""

    def __init__(self, path, seed):
        self.path = path
        self.chance = random.Random(seed)
        for name in NAMES:
            if self.chance.random() < 0.7:
                self.write(name)

    def words(self, number=8):
        return " ".join(self.chance.choices(WORDS, k=number))

    def write(self, name):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.content(name))
        # Copies and checkouts set times of the past.
        moment = self.chance.randint(10**9, 10**9 + 9)
        os.utime(path, (moment, moment))

    def content(self, name):
        if self.chance.random() < 0.05:
            return b"\x00\xffdamaged"
        suffix = name.rpartition(".")[2]
        return getattr(self, f"make_{suffix}", self.make_text)()

    def make_text(self):
        return f"# {self.words(2)}\n\n{self.words()}\n".encode()

    def make_json(self):
        return json.dumps({"text": self.words()}).encode()

    def make_py(self):
        return f"class {self.words(1)}:\n    def run(self):\n        # {self.words()}\n".encode()

    def make_eml(self):
        mail = EmailMessage()
        mail["From"] = "ada@example.org"
        mail["Subject"] = self.words(2)
        mail.set_content(self.words())
        for _ in range(self.chance.randrange(3)):
            name = self.chance.choice(["a.md", "b.txt", "c.pdf", "d.png"])
            content = samples.pdf([self.words()]) if name == "c.pdf" else self.make_text()
            mail.add_attachment(
                content, maintype="application", subtype="octet-stream", filename=name
            )
        return bytes(mail)

    def make_mbox(self):
        mails = [self.make_eml() for _ in range(self.chance.randrange(1, 4))]
        return b"".join(b"From a Fri Mar  1 10:00:00 2024\n" + mail + b"\n" for mail in mails)

    def members(self):
        names = self.chance.sample(["a.md", "b/c.txt", ".h.md", "d.png", "e.eml", "skip.md"], 3)
        return {name: self.content(name) for name in names}

    def make_zip(self):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, content in self.members().items():
                archive.writestr(name, content)
        return buffer.getvalue()

    def make_gz(self):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name, content in self.members().items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        return buffer.getvalue()

    def make_csv(self):
        rows = [f"{self.words(1)},{self.words(3)}" for _ in range(self.chance.randrange(1, 30))]
        return "\n".join(["name,note", *rows]).encode()

    def make_jsonl(self):
        return "\n".join(json.dumps({"a": self.words(3)}) for _ in range(5)).encode()

    def make_html(self):
        day = self.chance.randint(1, 28)
        head = f'<title>{self.words(2)}</title><meta name="date" content="2026-03-{day:02}">'
        return f"<html><head>{head}</head><body><p>{self.words()}</p></body></html>".encode()

    def make_pdf(self):
        return samples.pdf([self.words() for _ in range(self.chance.randrange(1, 4))])

    def make_docx(self):
        return samples.docx(f"<w:p><w:r><w:t>{self.words()}</w:t></w:r></w:p>")

    def make_xlsx(self):
        return samples.xlsx()

    def change(self):
        """Write, touch, delete or rename a file."""
        name = self.chance.choice(NAMES)
        path = self.path / name
        kind = self.chance.choice(["write", "write", "touch", "remove", "rename"])
        if kind == "write" or not path.exists():
            self.write(name)
        elif kind == "touch":
            moment = self.chance.randint(10**9, 10**9 + 9)
            os.utime(path, (moment, moment))
        elif kind == "remove":
            path.unlink()
        else:
            path.rename(path.with_name(f"renamed-{path.name}"))


def remember(index, folder):
    index.add(CorpusReader(folder, on_empty="yield", **RULES), remember=True)


def state(index):
    """Everything of an index that does not depend on its history."""
    documents = {
        document.id: (document.title, document.text, document.metadata, document.outline)
        for document in index
    }
    settings = SearchSettings(mode="bm25", k=300)
    hits = {
        query: [(hit.id, hit.passage, hit.score) for hit in index.search(query, settings)]
        for query in ("honey", "roof cellar", "d")
    }
    return documents, hits


def rounds(place, seed):
    """Change files, refresh, and compare with a new index, for ever."""
    folder = Folder(place / "notes", seed)
    with Index.create(place / "kept.index") as index:
        remember(index, folder.path)
        for number in count():
            for _ in range(folder.chance.choice([1, 2, 5])):
                folder.change()
            index.refresh()
            with Index.create(place / f"{number}.index") as new:
                remember(new, folder.path)
                kept, fresh = state(index), state(new)
            assert kept == fresh, (seed, number)
            shutil.rmtree(place / f"{number}.index")
            yield number


@pytest.mark.parametrize("seed", range(2))
def test_a_refresh_gives_the_documents_and_scores_of_a_new_index(tmp_path, fake_encoder, seed):
    run_rounds(rounds, tmp_path, seed, 3)


@pytest.mark.soak
def test_many_refreshes_give_the_documents_and_scores_of_a_new_index(tmp_path, fake_encoder):
    run_seeds(rounds, tmp_path, 15)
