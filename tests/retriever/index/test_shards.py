"""Shards: an index made of them is the one that indexing makes, whatever happened on the way."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import struct

import numpy as np
import pytest
from safetensors.numpy import load_file

from indexes import writer_lock
from indexes.folder.verify import verify
from retriever import (
    Analyzer,
    AnalyzerSettings,
    CorpusReader,
    Document,
    Index,
    encode_shards,
    import_documents,
    read_shards,
)
from retriever.errors import (
    ConfigError,
    DamagedIndexError,
    EncoderMismatchError,
    IndexLockedError,
    RetrieverError,
    SourceError,
    StorageError,
)
from retriever.index.transfer import sharding
from tests.retriever.index.collection_samples import (
    answers,
    choice_of,
    make_index,
    random_documents,
    stored,
    word_vectors,
)

UNUSUAL = [
    Document("line\u2028ends", "w1 one\u2028line\u0085 w2\n\nw3\x00 w4", "Ünï \u2029 w5"),
    Document("emoji 🧵", "w1 🧵 w6", None, {"deep": {"é": ["\u2028", None, 1.5, 2**62]}}),
    Document("no text", "", "w7 w8"),
    Document("unknown words", "nothing that the model knows"),
    Document("long", " ".join(f"w{i % 60}" for i in range(400))),
]


def contents(folder):
    """{name: bytes} of the files of a folder, without the lock."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "writer.lock"}


@pytest.mark.parametrize("shard_size", [1, 7, 100])
def test_imported_shards_equal_index_of_same_documents(tmp_path, model, shard_size):
    documents = [*UNUSUAL, *random_documents(60)]
    done = encode_shards(documents, tmp_path / "shards", model, shard_size=shard_size)
    make_index(tmp_path / "direct", model, documents)
    # No model is loaded.
    (tmp_path / "words.txt").rename(tmp_path / "elsewhere.txt")
    report = import_documents(tmp_path / "imported", tmp_path / "shards")
    (tmp_path / "elsewhere.txt").rename(tmp_path / "words.txt")
    assert stored(tmp_path / "imported") == stored(tmp_path / "direct")
    assert answers(tmp_path / "imported") == answers(tmp_path / "direct")
    assert verify(tmp_path / "imported") == []
    with Index.open(tmp_path / "imported") as one, Index.open(tmp_path / "direct") as other:
        assert one.encoder_spec == other.encoder_spec
        assert (one.passages, one.analyzer.settings) == (other.passages, other.analyzer.settings)
    assert (done.shards, done.made, done.documents) == (-(-65 // shard_size), done.shards, 65)
    assert (report.added, report.passages, report.scaled) == (65, done.passages, 0)
    assert import_documents(tmp_path / "imported", tmp_path / "shards").unchanged == 65


def test_other_programs_read_a_shard(tmp_path, model):
    documents = random_documents(5)
    encode_shards(documents, tmp_path / "s", model)
    tensors = load_file(tmp_path / "s/000000.safetensors")
    lines = tensors["documents"].tobytes().decode().splitlines()
    assert [json.loads(line)["text"] for line in lines] == [document.text for document in documents]
    make_index(tmp_path / "direct", model, documents)
    vectors = [row for document in documents for row in stored(tmp_path / "direct")[document.id][4]]
    np.testing.assert_array_equal(tensors["vectors"], np.array(vectors, np.float32))
    assert tensors["hashes"].shape == (5, 16)
    assert tensors["passage_counts"].sum() == len(tensors["spans"]) == len(vectors)


def test_terms_are_taken_from_the_shards_only_for_the_same_analyzer(tmp_path, model, monkeypatch):
    documents = [Document("a", "w1 the running of stories"), Document("b", "w2 story")]
    encode_shards(documents, tmp_path / "shards", model)
    analyzed = []
    read = Analyzer.analyzed
    monkeypatch.setattr(Analyzer, "analyzed", lambda *given: analyzed.append(1) or read(*given))
    import_documents(tmp_path / "same", tmp_path / "shards")
    assert analyzed == []
    german = AnalyzerSettings(language="german")
    import_documents(tmp_path / "other", tmp_path / "shards", analyzer=german)
    assert len(analyzed) == 2
    monkeypatch.undo()
    make_index(tmp_path / "direct", model, documents, analyzer=german)
    for query in ("the", "stories", "story", "running"):
        found = []
        for name in ("other", "direct"):
            with Index.open(tmp_path / name) as index:
                hits = index.search(query, mode="bm25")
                found.append([(hit.id, hit.score) for hit in hits])
        assert found[0] == found[1]


def test_of_equal_ids_the_last_stands_in_one_shard_and_across_shards(tmp_path, model):
    documents = [Document(id_, f"w{n} text") for n, id_ in enumerate("aabcad")]
    encode_shards(documents, tmp_path / "shards", model, shard_size=3)
    for _ in range(2):
        import_documents(tmp_path / "index", tmp_path / "shards")
        texts = {id_: text for id_, (_, text, *_) in stored(tmp_path / "index").items()}
        assert texts == {"a": "w4 text", "b": "w2 text", "c": "w3 text", "d": "w5 text"}


def test_empty_documents_are_left_out_and_a_shard_may_hold_none(tmp_path, model):
    documents = [Document("a", " "), Document("b", "\n", ""), Document("c", "w1")]
    done = encode_shards(documents, tmp_path / "shards", model, shard_size=2)
    assert (done.shards, done.documents) == (2, 1)
    assert [document.document.id for document in read_shards(tmp_path / "shards")] == ["c"]
    assert encode_shards(documents, tmp_path / "shards", model, shard_size=2).made == 0
    assert encode_shards([], tmp_path / "none", model).shards == 0
    assert list(read_shards(tmp_path / "none")) == []


def test_shard_of_long_texts_ends_early(tmp_path, model, monkeypatch):
    monkeypatch.setattr("retriever.index.transfer.shards._BLOCK_BYTES", 200)
    documents = [Document(str(n), "w1 " * 30) for n in range(6)]
    assert encode_shards(documents, tmp_path / "shards", model).shards == 3
    assert [document.document for document in read_shards(tmp_path / "shards")] == documents


@pytest.mark.parametrize("on_long", ["split", "truncate"])
def test_long_texts_are_treated_as_in_the_index(tmp_path, model, on_long):
    done = encode_shards(UNUSUAL, tmp_path / "shards", model, on_long=on_long)
    make_index(tmp_path / "direct", model, UNUSUAL, on_long=on_long)
    import_documents(tmp_path / "imported", tmp_path / "shards")
    assert stored(tmp_path / "imported") == stored(tmp_path / "direct")
    assert (done.split > 0, done.truncated > 0) == (on_long == "split", on_long == "truncate")
    other = {"split": "truncate", "truncate": "split"}[on_long]
    with pytest.raises(ConfigError, match="were begun with passages"):
        encode_shards(UNUSUAL, tmp_path / "shards", model, on_long=other)
    make_index(tmp_path / "other", model, UNUSUAL[:1], on_long=other)
    with pytest.raises(ConfigError, match="treatment of long texts"):
        import_documents(tmp_path / "other", tmp_path / "shards")


def test_a_long_text_is_refused_if_asked_and_can_be_split_later(tmp_path, model):
    for _ in range(2):
        with pytest.raises(SourceError, match="'long': longer than the encoder's window of 12"):
            encode_shards(UNUSUAL, tmp_path / "s", model, on_long="error", shard_size=2)
    assert (tmp_path / "s/000001.safetensors").exists()
    with pytest.raises(SourceError, match="not all shards are made"):
        next(read_shards(tmp_path / "s"))
    assert encode_shards(UNUSUAL, tmp_path / "s", model, shard_size=2).made == 1


class Interrupted(list):
    def __iter__(self):
        yield from super().__iter__()
        raise KeyboardInterrupt


def test_encode_shards_resumes_with_missing_shards_only(tmp_path, model):
    documents, folder = random_documents(50), tmp_path / "shards"
    with pytest.raises(KeyboardInterrupt):
        encode_shards(Interrupted(documents[:35]), folder, model, shard_size=10)
    before = contents(folder)
    assert sorted(before) == [*(f"00000{n}.safetensors" for n in range(3)), "plan.json"]
    (folder / ".000003.safetensors.1-00.tmp").write_text("what a killed process left")
    (folder / "000001.safetensors").unlink()
    # Settings that are not given are those of the plan.
    done = encode_shards(documents, folder)
    assert (done.made, done.shards) == (3, 5)
    after = contents(folder)
    del before["plan.json"]
    assert before.items() <= after.items()
    assert len(after) == 6
    assert encode_shards(documents, folder).made == 0
    assert contents(folder) == after


def test_altered_byte_of_shard_is_found_and_shard_is_encoded_again(tmp_path, model):
    documents, folder = random_documents(12), tmp_path / "shards"
    encode_shards(documents, folder, model, shard_size=6)
    sound, path = contents(folder), folder / "000001.safetensors"
    chance = random.Random(3)
    whole = sound[path.name]
    for place in [0, 9, *chance.sample(range(len(whole)), 60)]:
        broken = bytearray(whole)
        broken[place] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        with pytest.raises(DamagedIndexError, match=r"000001\.safetensors: .*\("):
            list(read_shards(folder))
    path.write_bytes(whole[:-1])
    with pytest.raises(DamagedIndexError, match=r"000001\.safetensors: not a readable shard"):
        import_documents(tmp_path / "index", folder)
    # What came before stays.
    assert len(stored(tmp_path / "index")) == 6
    path.unlink()
    with pytest.raises(DamagedIndexError, match=r"000001\.safetensors: the file is missing"):
        import_documents(tmp_path / "index", folder)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(DamagedIndexError, match=r"expected SHA-256 [0-9a-f]{64}, found [0-9a-f]"):
        import_documents(tmp_path / "index", folder)
    (folder / "000000.safetensors").rename(folder / "away")
    with pytest.raises(DamagedIndexError, match=r"000000\.safetensors: the file is missing"):
        import_documents(tmp_path / "none", folder)
    assert not (tmp_path / "none").exists()
    (folder / "away").rename(folder / "000000.safetensors")
    done = encode_shards(documents, folder)
    assert done.made == len(done.damaged) == 1
    assert contents(folder) == sound
    assert import_documents(tmp_path / "index", folder).added == 6


def test_foreign_or_misplaced_shard_is_replaced(tmp_path, model):
    for name, overlap in (("one", "12"), ("two", "10")):
        choice = model.replace("length=12", f"length={overlap}")
        encode_shards(random_documents(4), tmp_path / name, choice, shard_size=2)
    foreign = (tmp_path / "two/000000.safetensors").read_bytes()
    (tmp_path / "one/000000.safetensors").write_bytes(foreign)
    with pytest.raises(DamagedIndexError, match="made with other settings"):
        next(read_shards(tmp_path / "one"))
    moved = (tmp_path / "one/000001.safetensors").read_bytes()
    (tmp_path / "one/000000.safetensors").write_bytes(moved)
    with pytest.raises(DamagedIndexError, match="expected shard 0, found shard 1"):
        next(read_shards(tmp_path / "one"))


def test_encode_shards_refuses_settings_other_than_stored(tmp_path, model):
    documents, folder = random_documents(4), tmp_path / "shards"
    encode_shards(documents, folder, model, shard_size=2)
    before = contents(folder)
    for settings, named in (
        (
            {"model": model.replace("length=12", "length=13")},
            "encoder .*max-length=12.* but .*max-length=13",
        ),
        ({"shard_size": 3}, "shard size 2, but 3"),
        (
            {"analyzer": AnalyzerSettings(language="german")},
            "analyzer language=auto, .* but language=german",
        ),
        ({"shard_size": 0}, "expected 1 or more, found 0"),
        ({"workers": 0}, "expected 1 or more, found 0"),
    ):
        with pytest.raises(ConfigError, match=named):
            encode_shards(documents, folder, **settings)
    assert contents(folder) == before


def test_a_source_that_has_changed_is_refused(tmp_path, model, write_jsonl):
    records = [{"id": str(n), "text": f"w{n}"} for n in range(9)]
    source = write_jsonl(*records)
    encode_shards(CorpusReader(source), tmp_path / "shards", model, shard_size=4)
    with pytest.raises(SourceError, match=r"000002\.safetensors: .* from document 9 on"):
        encode_shards(
            CorpusReader(write_jsonl(*records, {"id": "9", "text": "w1"})), tmp_path / "shards"
        )
    changed = [dict(record) for record in records]
    changed[5]["text"] = "w6"
    with pytest.raises(SourceError, match=r"000001\.safetensors: .* from document 5 on"):
        encode_shards(CorpusReader(write_jsonl(*changed)), tmp_path / "shards")
    documents = [*CorpusReader(write_jsonl(*records))]
    with pytest.raises(SourceError, match=r"000001\.safetensors: the source ended before"):
        encode_shards(documents[:4], tmp_path / "shards")
    assert encode_shards(documents, tmp_path / "shards").made == 0


def test_an_index_of_another_encoder_is_refused(tmp_path, model):
    encode_shards(random_documents(3), tmp_path / "shards", model)
    other = choice_of(word_vectors(tmp_path / "other.txt", seed=1))
    make_index(tmp_path / "index", other, random_documents(1))
    with pytest.raises(EncoderMismatchError):
        import_documents(tmp_path / "index", tmp_path / "shards")
    with pytest.raises(EncoderMismatchError, match=r"plan\.json: the vectors are of"):
        import_documents(tmp_path / "new", tmp_path / "shards", other)
    assert not (tmp_path / "new").exists()
    assert import_documents(tmp_path / "new", tmp_path / "shards", model).added == 3


def test_encode_shards_refuses_foreign_folders_and_bad_documents(tmp_path, model):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/1.jpg").touch()
    with pytest.raises(StorageError, match=r"holds '1\.jpg', which is no part of shards"):
        encode_shards([], tmp_path / "photos", model)
    assert [*contents(tmp_path / "photos")] == ["1.jpg"]
    with pytest.raises(SourceError, match="holds no shards"):
        next(read_shards(tmp_path / "photos"))
    encode_shards([], tmp_path / "s", model)
    (tmp_path / "s/plan.json").write_text("{}")
    with pytest.raises(DamagedIndexError, match=r"plan\.json: not a readable plan"):
        encode_shards([], tmp_path / "s", model)
    with (
        writer_lock(tmp_path / "s"),
        pytest.raises(IndexLockedError, match="another writer holds the shards"),
    ):
        encode_shards([], tmp_path / "s", model)
    for bad in (Document("b", "\ud800"), Document("b", "w1", None, {"n": float("nan")})):
        with pytest.raises(SourceError, match="document 'b': "):
            encode_shards([Document("a", "w1"), bad], tmp_path / "bad", model)


def test_worker_processes_write_same_shards_and_killed_worker_ends_run(tmp_path, model):
    documents = random_documents(200)
    encode_shards(documents, tmp_path / "alone", model, shard_size=20)

    class Killing:
        encoded_passages = shards = 0

        def encoded(self, passages, pieces):
            self.encoded_passages += passages

        def finished(self, reached):
            self.shards += 1
            if self.shards == 3:
                multiprocessing.active_children()[0].kill()

    progress = Killing()
    with pytest.raises(RetrieverError, match="was killed by signal 9 while it encoded shard"):
        encode_shards(documents, tmp_path / "s", model, shard_size=20, workers=2, progress=progress)
    assert multiprocessing.active_children() == []
    assert progress.encoded_passages > 0
    done = encode_shards(documents, tmp_path / "s")
    assert 0 < done.made < 10
    assert contents(tmp_path / "s") == contents(tmp_path / "alone")


def test_a_worker_ends_quietly_if_its_parent_was_stopped_while_it_sent(monkeypatch):
    monkeypatch.setattr(sharding, "limit_to_core_share", lambda place, of: None)
    ours, theirs = multiprocessing.Pipe()
    # A message begins with its length; the parent was interrupted after three of its bytes.
    os.write(ours.fileno(), struct.pack("!i", 100) + b"abc")
    ours.close()
    sharding._work(None, theirs, 0, 1)
