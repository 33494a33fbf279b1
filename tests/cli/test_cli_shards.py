"""`retriever encode --shards` and the import of shards: output, refusals and exit codes."""

from __future__ import annotations

import contextlib
import gzip
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.conftest import assert_refused, printed_json
from tests.retriever.index.collection_samples import choice_of, word_vectors

RECORDS = [{"id": f"d{n}", "text": f"w{n} apples", "year": 2000 + n} for n in range(7)]


@pytest.fixture
def model(tmp_path):
    return choice_of(word_vectors(tmp_path / "words.txt"))


def test_encoded_shards_are_imported_and_searched(model, retriever, write_jsonl):
    long = {"id": "long", "text": "apples " * 40}
    source = write_jsonl(*RECORDS, {"id": "empty", "text": ""}, long)
    packed = source.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(source.read_bytes()))
    arguments = ("encode", packed, "--shards", "s", "--shard-size", "3")
    empty = f"warning: 1 document without text skipped: {packed}:8\n"
    done = retriever(*arguments, "--model", model)
    summary = (
        "s: 3 shards, 3 of them new; 8 documents, 13 passages of 8 dimensions (1 document split)"
    )
    assert done == (0, f"{summary}\n", empty)
    assert retriever("encode", packed, "--shards", "s", "--quiet") == (0, "", empty)
    cut = retriever(*arguments[:3], "cut", "--on-long", "truncate", "--model", model)
    assert cut.err == f"{empty}warning: 1 document truncated to the encoder's window\n"
    refused_long = retriever(*arguments[:3], "no", "--on-long", "error", "--model", model)
    assert (refused_long.code, "'long'" in refused_long.err) == (2, True)
    assert retriever("import", "s", "-i", "i").out.startswith("i: 8 added, 0 updated, 0 unchanged")
    assert printed_json(retriever("import", "s", "-i", "i", "--json"))["unchanged"] == 8
    hits = retriever("query", "w3", "-i", "i", "--where", "year = 2003", "--json")
    assert printed_json(hits)["id"] == "d3"


def test_a_damaged_shard_is_named_with_exit_code_3_and_made_again(model, retriever, write_jsonl):
    arguments = ("encode", write_jsonl(*RECORDS), "--shards", "s", "--model", model)
    assert retriever(*arguments).code == 0
    with open("s/000000.safetensors", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    altered = "s/000000.safetensors: its content was altered (expected"
    assert_refused(retriever("import", "s", "-i", "i"), altered, code=3)
    done = retriever(*arguments)
    assert (done.code, done.out.split(";")[0]) == (0, "s: 1 shard, 1 of them new")
    assert done.err.startswith(f"warning: {altered}")
    assert done.err.endswith("; made again\n")
    assert retriever("import", "s", "-i", "i").code == 0


REFUSED = [
    ("", "expected either --output or --shards"),
    ("--shards s -o v.npy", "expected either --output or --shards"),
    ("-o v.npy --workers 2", "--workers: it needs --shards"),
    ("-o v.npy --types a=string", "--types: it needs --shards"),
    ("-o v.npy --set stemming=no", "--set stemming: it needs --shards"),
    ("-o v.npy --on-long split", "a row is a document; use --shards"),
    ("--shards s --as-queries", "shards hold passages; use --output"),
    ("--shards s --shard-size 2", "begun with shard size 10000, but 2 was asked"),
    ("--shards t --ray local", 'pip install "layer-retriever[ray]"'),
]


def test_encode_refuses_options_that_do_not_fit_shards(model, retriever, write_jsonl, monkeypatch):
    source = write_jsonl(*RECORDS)
    assert retriever("encode", source, "--shards", "s", "--model", model).code == 0
    monkeypatch.setattr("retriever.errors.find_spec", lambda name: None)
    for options, message in REFUSED:
        assert_refused(retriever("encode", source, *shlex.split(options)), message)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://here:10001", "Ray Data does not run over Ray Client; run the command on a machine"),
        ("127.0.0.1:1", "no Ray cluster answers"),
    ],
)
def test_ray_address_without_cluster_is_refused(model, retriever, write_jsonl, address, message):
    pytest.importorskip("ray", reason='Ray is missing: pip install "layer-retriever[ray]"')
    arguments = ("encode", write_jsonl(*RECORDS), "--shards", "s", "--model", model)
    assert_refused(retriever(*arguments, "--ray", address), message)


def running(*arguments):
    """Start `retriever` in its own process group, as a terminal does."""
    return subprocess.Popen(
        [sys.executable, "-c", "from cli.main import main; main()", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # As at a terminal, also where the tests are a background job.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def until_gone(group):
    """Wait until all processes of a group have ended."""
    until = time.monotonic() + 30
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < until:
            os.killpg(group, 0)
            time.sleep(0.05)
        pytest.fail("a worker outlives its parent")


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_keeps_finished_shards(
    tmp_path, minilm, retriever, write_jsonl, workers, how
):
    source = write_jsonl(*({"id": str(n), "text": f"text {n} of many " * 20} for n in range(300)))
    arguments = ("encode", source, "--shards", tmp_path / "s", "--shard-size", "20")
    process = running(*arguments, "--workers", str(workers))
    until = time.monotonic() + 60
    while not list((tmp_path / "s").glob("*.safetensors")):
        assert time.monotonic() < until
        time.sleep(0.01)
    if how == signal.SIGINT:
        os.killpg(process.pid, how)
    else:
        # The parent alone: its workers notice.
        process.kill()
    out, err = process.communicate(timeout=60)
    assert out == ""
    if how == signal.SIGINT:
        assert process.returncode == 130
        resuming = (
            f"{tmp_path / 's'}: finished shards are kept; run the same command again to resume"
        )
        assert list(filter(None, err.splitlines())) == [resuming, "retriever: interrupted"]
    else:
        assert err == ""
    until_gone(process.pid)
    shard_names = {path.name for path in (tmp_path / "s").glob("*.safetensors")}
    assert 0 < len(shard_names) < 15
    done = retriever(*arguments)
    assert f"15 shards, {15 - len(shard_names)} of them new; 300 documents" in done.out
    assert retriever("import", tmp_path / "s", "-i", tmp_path / "i").code == 0
    assert retriever("verify", "-i", tmp_path / "i").code == 0
