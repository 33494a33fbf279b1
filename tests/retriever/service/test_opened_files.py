"""The files of documents over HTTP: what is given, how, and everything that is refused."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import urllib.request

import pytest

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

from retriever import CorpusReader, Index
from retriever.documents.file_kinds import KINDS
from retriever.service import ServiceSettings, create_app, files
from tests.retriever.service.servers import running

FILES = {
    "notes.md": "# Wind\n\nSailing boats need wind. ä",
    "deep/er/code.py": "print('wind')",
    "page.html": "<html><body><p>Wind turns the mill.</p><script>alert(1)</script></body></html>",
    "mail.eml": "From: a@example.org\nSubject: wind\n\nWind and coal.\n",
    "box.mbox": "From a@example.org Thu Jan  1 00:00:00 2020\nSubject: one\n\nMore wind.\n",
    "odd ü\r\n&name.txt": "wind and a name",
    "README": "Read of the wind.",
    "tale": "A tale of the wind.",
}


@pytest.fixture
def corpus(tmp_path):
    corpus = tmp_path / "corpus"
    for name, text in FILES.items():
        path = corpus / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return corpus


@pytest.fixture
def index(tmp_path, corpus, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        index.add(CorpusReader([corpus]), remember=True)
        yield index


def client_of(index, client=("127.0.0.1", 50_000), **settings):
    app = create_app({"index": index}, ServiceSettings(**{"open_files": True, **settings}))
    return TestClient(app, "http://127.0.0.1:8765", raise_server_exceptions=False, client=client)


@pytest.fixture
def client(index):
    with client_of(index) as client:
        yield client


def ask(client, id_, **headers):
    return client.get("/file", params={"id": id_}, headers=headers)


@pytest.mark.parametrize(
    ("name", "media_type", "kind"),
    [
        ("notes.md", "text/plain; charset=utf-8", "inline"),
        ("deep/er/code.py", "text/plain; charset=utf-8", "inline"),
        ("page.html", "application/octet-stream", "attachment"),
        ("mail.eml", "application/octet-stream", "attachment"),
        ("odd ü\r\n&name.txt", "text/plain; charset=utf-8", "inline"),
        ("README", "text/plain; charset=utf-8", "inline"),
        ("tale", "text/plain; charset=utf-8", "inline"),
    ],
)
def test_file_is_given_as_text_or_as_a_download(client, name, media_type, kind):
    answer = ask(client, name)
    assert answer.status_code == 200
    assert answer.content == FILES[name].encode()
    assert answer.headers["content-type"] == media_type
    disposition = answer.headers["content-disposition"]
    assert disposition.startswith(f"{kind}; filename*=UTF-8''")
    assert disposition.isascii()
    assert disposition.isprintable()
    (policy,) = answer.headers.get_list("content-security-policy")
    assert policy == "sandbox; default-src 'none'; frame-ancestors 'none'"
    for header, value in (
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
    ):
        assert answer.headers.get_list(header) == [value]
    assert client.get("/documents", params={"id": name}).json()["file"] == media_type


@pytest.mark.parametrize(
    ("name", "content", "media_type"),
    [
        ("a.pdf", b"%PDF-1.4", files.PDF),
        ("A.PDF", b"<html>", files.PDF),
        ("a.txt", b"%PDF-1.4", files.PDF),
        ("a.txt", b"<html><script>", files.TEXT),
        ("a.txt.gz", b"\x1f\x8b", files.DOWNLOAD),
        ("a.pdf.gz", b"\x1f\x8b", files.DOWNLOAD),
        *((f"a{suffix}", b"x", files.DOWNLOAD) for suffix in (".html", ".htm", ".xhtml")),
        *((f"a{suffix}", b"<svg", files.DOWNLOAD) for suffix in (".svg", ".xml", ".unknown", "")),
    ],
)
def test_only_pdf_and_text_are_shown(tmp_path, name, content, media_type):
    (tmp_path / name).write_bytes(content)
    with open(tmp_path / name, "rb") as stream:
        assert files._media_type(name, stream) == media_type
        assert stream.read() == content


def test_no_kind_of_text_is_one_that_a_browser_could_run():
    suffixes = {
        suffix for kind in KINDS.values() if kind.is_text for suffix in kind.suffixes.split()
    }
    assert not suffixes & {".html", ".htm", ".xhtml", ".xht", ".svg", ".xml", ".xsl", ".mhtml"}


def test_files_are_not_given_unless_the_service_is_told_to(index):
    with client_of(index, open_files=False) as client:
        assert ask(client, "notes.md").status_code == 404
        assert "file" not in client.get("/documents/notes.md").json()


@pytest.mark.parametrize(
    "id_",
    [
        "../corpus/notes.md",
        "../index/index.sqlite",
        "deep/../notes.md",
        "./notes.md",
        "/etc/passwd",
        "deep//er/code.py",
        "deep",
        "",
        ".",
        "notes.md\0",
        "notes.md\n",
        "box.mbox",
        "box.mbox#1",
        "notes%2emd",
        "x" * 5_000,
    ],
)
def test_only_documents_that_are_whole_files_are_given(client, id_):
    assert ask(client, id_).status_code == 404
    if id_ == "box.mbox#1":
        assert "file" not in client.get("/documents", params={"id": id_}).json()


@pytest.mark.parametrize(
    "query",
    ["id=%ff", "id=%ed%a0%80", "id=..%2fcorpus%2fnotes.md", "id=notes.md%00", "id=%2fetc%2fpasswd"],
)
def test_encoded_addresses_lead_nowhere(client, query):
    assert client.get(f"/file?{query}").status_code in (400, 404)
    assert client.get(f"/file/{query}").status_code in (400, 404)


def test_documents_that_came_otherwise_have_no_file(tmp_path, index):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    index.add([{"id": "secret.txt", "text": "x"}, {"id": str(secret), "text": "x"}])
    table = tmp_path / "table.jsonl"
    table.write_text(f'{{"id": "{table}", "text": "x"}}\n')
    index.add(CorpusReader([table]), remember=True)
    with client_of(index) as client:
        for id_ in ("secret.txt", str(secret), str(table)):
            assert id_ in index
            assert ask(client, id_).status_code == 404


def test_files_of_several_folders_and_single_files_are_given(tmp_path, corpus, fake_encoder):
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.md").write_text("coal")
    single = tmp_path / "single.md"
    single.write_text("steam")
    with Index.create(tmp_path / "both") as index:
        index.add(CorpusReader([corpus, other, single]), remember=True)
        with client_of(index) as client:
            assert ask(client, "other/notes.md").text == "coal"
            assert ask(client, "corpus/notes.md").text == FILES["notes.md"]
            assert ask(client, "notes.md").status_code == 404
            assert ask(client, str(single)).text == "steam"
            # What stands in the place of the file is another source.
            single.rename(tmp_path / "moved.md")
            single.symlink_to(tmp_path / "moved.md")
            assert ask(client, str(single)).status_code == 403


def test_deleted_and_erased_documents_are_not_given(index, client):
    index.delete(["notes.md"])
    index.delete(["page.html"], erase=True)
    for id_ in ("notes.md", "page.html"):
        assert ask(client, id_).status_code == 404


def replace_by_link(corpus, secret):
    (corpus / "notes.md").unlink()
    (corpus / "notes.md").symlink_to(secret / "er" / "code.py")


def replace_by_relative_link(corpus, secret):
    (corpus / "notes.md").unlink()
    (corpus / "notes.md").symlink_to("../secret/er/code.py")


def replace_by_pipe(corpus, secret):
    (corpus / "notes.md").unlink()
    os.mkfifo(corpus / "notes.md")


def replace_by_folder(corpus, secret):
    (corpus / "notes.md").unlink()
    (corpus / "notes.md").mkdir()


def replace_by_device(corpus, secret):
    (corpus / "notes.md").unlink()
    (corpus / "notes.md").symlink_to("/dev/zero")


def replace_by_itself(corpus, secret):
    (corpus / "notes.md").unlink()
    (corpus / "notes.md").symlink_to("notes.md")


def remove(corpus, secret):
    (corpus / "notes.md").unlink()


@pytest.mark.parametrize(
    ("replace", "status"),
    [
        (replace_by_link, 403),
        (replace_by_relative_link, 403),
        (replace_by_pipe, 403),
        (replace_by_folder, 403),
        (replace_by_device, 403),
        (replace_by_itself, 403),
        (remove, 404),
    ],
)
def test_replaced_file_is_not_served(tmp_path, corpus, client, replace, status):
    secret = tmp_path / "secret"
    (secret / "er").mkdir(parents=True)
    (secret / "er" / "code.py").write_text("secret")
    replace(corpus, secret)
    answer = ask(client, "notes.md")
    assert answer.status_code == status
    assert "\n" not in answer.json()["message"]
    assert str(tmp_path) not in answer.text
    assert "file" not in client.get("/documents/notes.md").json()


def test_link_of_a_folder_out_of_the_source_is_refused_and_one_inside_is_followed(
    tmp_path, corpus, client
):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "code.py").write_text("secret")
    (corpus / "deep" / "er").rename(corpus / "deep" / "real")
    (corpus / "deep" / "er").symlink_to("real")
    assert ask(client, "deep/er/code.py").text == FILES["deep/er/code.py"]
    (corpus / "deep" / "er").unlink()
    (corpus / "deep" / "er").symlink_to(tmp_path / "secret")
    assert ask(client, "deep/er/code.py").status_code == 403


def test_folders_and_files_that_are_swapped_meanwhile_never_lead_out(tmp_path, corpus, index):
    """A thread swaps a folder and a file for links out, while files are opened."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "code.py").write_text("secret")
    place, real, link = corpus / "deep" / "er", corpus / "deep" / "real", corpus / "deep" / "link"
    stop = threading.Event()
    link.symlink_to(secret)

    def swap():
        while not stop.is_set():
            place.rename(real)
            link.rename(place)
            place.rename(link)
            real.rename(place)

    swapping = threading.Thread(target=swap)
    swapping.start()
    contents = set()
    try:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            try:
                file = files.open_document_file(index, "deep/er/code.py")
            except files.ServiceError:
                continue
            with file.stream as stream:
                contents.add(stream.read())
    finally:
        stop.set()
        swapping.join()
    assert contents == {FILES["deep/er/code.py"].encode()}


def test_link_that_appears_after_the_check_is_refused(tmp_path, corpus, index, monkeypatch):
    """A swap at the worst moment: after the path was resolved, before it is opened."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "code.py").write_text("secret")
    realpath = os.path.realpath

    def swapping(path, **keywords):
        resolved = realpath(path, **keywords)
        if str(path).endswith("code.py"):
            (corpus / "deep" / "er").rename(corpus / "deep" / "real")
            (corpus / "deep" / "er").symlink_to(tmp_path / "secret")
        return resolved

    monkeypatch.setattr(os.path, "realpath", swapping)
    with pytest.raises(files.ServiceError, match="Not a directory"):
        files.open_document_file(index, "deep/er/code.py")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8765"}, 200),
        ({"host": "[::1]:8765"}, 200),
        ({"host": "evil.org"}, 421),
        ({"host": "192.168.1.7"}, 403),
        # Names under which others know the service, and pages that may call the rest of it.
        ({"host": "search.example.org"}, 403),
        ({"origin": "https://app.example.org"}, 403),
        ({"origin": "https://evil.org"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
        ({"sec-fetch-site": "cross-site", "origin": "https://app.example.org"}, 403),
        ({"sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate"}, 200),
        ({"sec-fetch-site": "none"}, 200),
    ],
)
def test_files_are_for_pages_of_the_service_on_this_machine(index, headers, status):
    allowed = {"hosts": ("search.example.org",), "origins": ("https://app.example.org",)}
    with client_of(index, **allowed) as client:
        assert ask(client, "notes.md", **headers).status_code == status
        if status == 403 and "host" in headers:
            answer = client.get("/documents/notes.md", headers=headers)
            assert "file" not in answer.json()


def test_client_of_another_machine_gets_no_file(index):
    with client_of(index, client=("192.168.1.8", 50_000)) as client:
        assert ask(client, "notes.md").status_code == 403
        assert "file" not in client.get("/documents/notes.md").json()


def test_token_is_needed_for_files(index):
    with client_of(index, token="s3cret") as client:
        assert ask(client, "notes.md").status_code == 401
        assert ask(client, "notes.md", authorization="Bearer s3cret").status_code == 200


def test_large_file_is_streamed_beyond_the_time_limit_of_a_request(corpus, index, monkeypatch):
    size = 64 * 2**20
    with open(corpus / "notes.md", "wb") as file:
        file.truncate(size)
    monkeypatch.setattr(files, "_CHUNK", size // 8)
    pause = asyncio.to_thread

    async def slow(read, *arguments):
        await asyncio.sleep(0.1)
        return await pause(read, *arguments)

    monkeypatch.setattr(asyncio, "to_thread", slow)
    length = 0
    with (
        running(index, open_files=True, timeout=0.5) as (_, port),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/file?id=notes.md") as answer,
    ):
        while chunk := answer.read(2**20):
            length += len(chunk)
    assert length == size


def test_file_that_grows_is_given_as_it_was(corpus, index):
    file = files.open_document_file(index, "notes.md")
    with open(corpus / "notes.md", "ab") as stream:
        stream.write(b"more")

    async def read():
        return b"".join([chunk async for chunk in files._read_chunks(file)])

    assert asyncio.run(read()) == FILES["notes.md"].encode()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org"])
def test_open_files_with_an_address_of_other_machines_is_refused(retriever, index, host):
    command = ["serve", index.folder, "--open-files", "--host", host, "--token", "x"]
    result = retriever(*command)
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert (
        f"--open-files works only on this machine, but other machines can reach --host {host}"
        in line
    )
