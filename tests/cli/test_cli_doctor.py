"""`retriever doctor`, and `retriever` alone at a terminal."""

import json

from cli.main import start_lines
from tests.cli.conftest import found


def kinds(outcome):
    return [one["kind"] for one in json.loads(outcome.out)["findings"]]


def test_doctor_names_what_is_stale_and_damaged(retriever, fake_encoder, tmp_path, monkeypatch):
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text("Apples are red.")
    assert retriever("index", "notes", "--quiet").code == 0
    assert found(retriever("doctor", "--json"))["findings"] == []
    assert retriever("doctor").out.endswith("\n.retriever: sound, and nothing is missing\n")
    (notes / "b.txt").write_text("Pears are green.")
    stale = retriever("doctor")
    assert stale.code == 1
    assert (
        "1 file new or changed, 0 gone\n  mend it: retriever refresh -i .retriever\n" in stale.out
    )
    assert retriever("refresh").code == 0
    assert retriever("doctor").code == 0
    (notes / "c.pdf").write_text("")
    monkeypatch.setattr("retriever.index.sources.lacking", lambda: ["pypdfium2"])
    assert kinds(retriever("doctor", "--json")) == ["sources", "extra"]
    (notes / "c.pdf").unlink()
    (notes / "a.txt").unlink()
    (notes / "b.txt").unlink()
    notes.rmdir()
    assert "retriever refresh --prune" in retriever("doctor").out
    assert kinds(retriever("doctor", "--json")) == ["sources"]
    assert retriever("doctor", "-i", "none").code == 2
    (tmp_path / ".retriever" / "index.sqlite-sources").write_text("no database at all")
    damaged = retriever("doctor", "--json")
    assert (damaged.code, kinds(damaged)) == (3, ["damage"])


def test_alone_at_a_terminal(retriever, standing, tmp_path, monkeypatch):
    assert retriever().code == 2
    (tmp_path / "below").mkdir()
    shown = list(start_lines())
    assert any(line.startswith("retriever doctor ") for line in shown)
    assert ": 2 documents, encoder " in shown[-1]
    monkeypatch.chdir(tmp_path / "below")
    assert list(start_lines())[-1] == f"To use it from here: -i {tmp_path}/.retriever"
    monkeypatch.setenv("RETRIEVER_INDEX", "none")
    assert list(start_lines())[-1].startswith("none: ")
    monkeypatch.delenv("RETRIEVER_INDEX")
    monkeypatch.chdir(tmp_path)
