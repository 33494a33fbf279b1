"""The service below a path of the nginx and the Caddy of `examples/proxy`, with TLS."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from contextlib import contextmanager
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urljoin

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
from retriever import Index
from tests.retriever.index.collection_samples import word_vectors
from tests.retriever.service.servers import started

EXAMPLES = Path(__file__).resolve().parents[3] / "examples/proxy"
HOST = "search.example.org"
PASSWORD = "a quiet harbor"
# By bcrypt with the least cost; `caddy hash-password` makes hashes that take a second to check.
PASSWORD_HASH = "$2a$04$abcdefghijklmnopqrstuuvM8c6wsdg0hqlUjMX.fRXkb9WJJZG1m"
TOKEN = "s3cret"
# In MiB; more than nginx and the service take for another request.
MAX_UPLOAD = 6
DOCUMENTS = [
    {"id": "a", "text": "apples and pears"},
    {"id": "b/c d", "text": "wind and apples"},
]


class Connection(HTTPSConnection):
    """A connection to a proxy of this machine, whatever the name servers say."""

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port), 20)
        self.sock = self._context.wrap_socket(connection, server_hostname=self.host)


class Client:
    """Requests to a proxy, with one connection each."""

    def __init__(self, port, authorization):
        self.address = f"https://{HOST}:{port}/search-notes/"
        self._port = port
        self._authorization = authorization
        # The certificate is one that no authority has signed.
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    def request(self, path, body=None, *, method=None, headers=None):
        """Return the status, headers and body of a response; a path is relative to the page."""
        target = urljoin(self.address, path).partition(f":{self._port}")[2]
        sent = {"Authorization": self._authorization, **(headers or {})}
        connection = Connection(HOST, self._port, context=self._context)
        try:
            method = method or ("GET" if body is None else "POST")
            connection.request(
                method, target, body, {name: value for name, value in sent.items() if value}
            )
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def json(self, path, body=None, **options):
        """Return the JSON of a successful response."""
        status, _, content = self.request(path, body, **options)
        assert status == 200, content
        return json.loads(content)


def without_password(text):
    """An example that passes on the token, as its comment says."""
    text = re.sub(r"\t\tbasicauth \{.*?\n\t\t\}\n", "", text, flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not re.search("auth_basic|Authorization", line)]
    return "\n".join(lines)


def with_token(text):
    """An example that asks for the password and sends the token, as its comment says."""
    text = text.replace('Authorization ""', f'Authorization "Bearer {TOKEN}"')
    return text.replace("header_up -Authorization", f'header_up Authorization "Bearer {TOKEN}"')


def substitute(text, **values):
    """Replace each value of an example, which must hold it."""
    for value, replacement in values.items():
        assert value in text, value
        text = text.replace(value, replacement)
    return text


def nginx_command(folder, port, text):
    """Write the settings of nginx, and return its command."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-subj", f"/CN={HOST}", "-keyout", folder / "key", "-out", folder / "pem"),
        ],
        check=True,
        capture_output=True,
    )
    digest = subprocess.run(
        ["openssl", "passwd", "-6", PASSWORD], check=True, capture_output=True, text=True
    ).stdout
    (folder / "passwords").write_text(f"team:{digest}")
    for name in re.findall(r"/etc/[\w./]+", re.sub("#.*", "", text)):
        kind = "passwords" if "htpasswd" in name else name.rpartition(".")[2]
        text = text.replace(name, str(folder / kind))
    text = substitute(text, **{"listen 443": f"listen 127.0.0.1:{port}"})
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    # With one process nginx does not change to another user, who could not read the folder.
    (folder / "main.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log stderr;\n"
        f"events {{}}\nhttp {{ access_log off; {temporary}\n{text}\n}}\n"
    )
    return ["nginx", "-c", folder / "main.conf", "-p", folder, "-e", "stderr"]


def caddy_command(folder, port, text):
    """Write the settings of Caddy, and return its command."""
    text = text.replace("HASH", PASSWORD_HASH)
    text = substitute(text, **{f"\n{HOST} {{": f"\n{HOST}:{port} {{"})
    (folder / "Caddyfile").write_text(
        "{\nadmin off\nlocal_certs\nskip_install_trust\nauto_https disable_redirects\n}\n" + text
    )
    return ["caddy", "run", "--config", folder / "Caddyfile", "--adapter", "caddyfile"]


PROXIES = {
    "nginx": ("nginx.conf", nginx_command, ("nginx", "openssl")),
    "caddy": ("Caddyfile", caddy_command, ("caddy",)),
}


@contextmanager
def proxy(kind, folder, service_port, edit=None):
    """A proxy with the settings of its example, which `edit` changes, and its port."""
    name, command, programs = PROXIES[kind]
    # Debian installs nginx where only administrators look.
    path = f"{os.environ['PATH']}:/usr/sbin"
    for program in programs:
        if shutil.which(program, path=path) is None:
            pytest.skip(f"{program} is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = (EXAMPLES / name).read_text()
    text = substitute(text, **{"127.0.0.1:8765": f"127.0.0.1:{service_port}"})
    text = text if edit is None else edit(text)
    home = {name: str(folder) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    log = folder / "log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            list(map(str, command(folder, port, text))),
            env={**os.environ, **home, "PATH": path},
            stdout=output,
            stderr=output,
        ) as process,
    ):
        try:
            until = time.monotonic() + 20
            while True:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                try:
                    # Caddy listens before it has a certificate.
                    Client(port, None).request("health")
                    break
                except OSError:
                    time.sleep(0.05)
            yield port
        finally:
            process.terminate()


@contextmanager
def service(folder, *options):
    """A service as the examples start it, with a model that loads at once; its port."""
    words = word_vectors(folder / "words.txt")
    with Index.create(folder / "notes.index", str(words)) as index:
        index.add(DOCUMENTS)
    behind_proxy = ("--root-path", "/search-notes", "--allow-host", HOST)
    with started(folder / "notes.index", *behind_proxy, *options) as (_, port):
        yield port


@pytest.fixture(scope="module")
def service_port(tmp_path_factory):
    limit = f"max-upload={MAX_UPLOAD}"
    with service(tmp_path_factory.mktemp("service"), "--writable", "--set", limit) as port:
        yield port


@pytest.fixture(scope="module")
def token_port(tmp_path_factory):
    with service(tmp_path_factory.mktemp("service"), "--token", TOKEN) as port:
        yield port


@pytest.fixture(scope="module", params=PROXIES)
def client(request, tmp_path_factory, service_port):
    with proxy(request.param, tmp_path_factory.mktemp("proxy"), service_port) as port:
        yield Client(port, basic(PASSWORD))


def basic(password):
    return "Basic " + base64.b64encode(f"team:{password}".encode()).decode()


def hits(answer):
    return [hit["id"] for hit in answer["results"][0]["hits"]]


def test_page_and_every_address_of_it_work_below_the_path(client):
    status, headers, content = client.request("?q=wind")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    links = re.findall(r'(?:href|src)="([^"#:]+)"', content.decode())
    assert {"page.css", "page.js", "openapi.json"} <= set(links)
    for link in (*links, "metrics", "health"):
        assert client.request(link)[0] == 200, link
    assert client.json("info")["default"] == "notes"
    (server,) = client.json("openapi.json")["servers"]
    assert server == {"url": "/search-notes"}


def test_address_without_its_slash_leads_to_the_page(client):
    status, headers, _ = client.request("/search-notes")
    assert status in (301, 307)
    assert urljoin(client.address.rstrip("/"), headers["location"]) == client.address


def test_search_of_the_page_is_answered_and_of_another_page_is_refused(client):
    body = json.dumps({"query": "wind", "mode": "bm25"})
    kind = {"Content-Type": "application/json"}
    for origin, status in (
        (client.address.removesuffix("/search-notes/"), 200),
        ("https://evil.org", 403),
    ):
        answer = client.request("search", body, headers={**kind, "Origin": origin})
        assert answer[0] == status, answer[2]
    assert hits(client.json("search?q=wind&mode=bm25")) == ["b/c d"]


def test_query_of_the_greatest_length_fits_into_an_address(client):
    query = "+".join(["wind"] * 2_000)
    assert client.request(f"?q={query}")[0] == 200
    assert hits(client.json(f"search?mode=bm25&q={query}")) == ["b/c d"]


def test_ids_arrive_as_a_client_encodes_them(client):
    for path in ("documents/b%2Fc%20d", "documents/b/c%20d", "documents?id=b%2Fc+d"):
        assert client.json(path)["id"] == "b/c d"
    for id_ in ("x//y", "50%", "%2F", "é"):
        encoded = "".join(f"%{byte:02X}" for byte in id_.encode())
        body = json.dumps({"text": "pears"})
        kind = {"Content-Type": "application/json"}
        client.json(f"documents/{encoded}", body, method="PUT", headers=kind)
        assert client.json(f"documents/{encoded}")["id"] == id_


def test_upload_up_to_the_limit_of_the_service_is_added_and_a_larger_one_is_refused(client):
    line = json.dumps({"id": "long", "text": "pears", "note": "x" * 2**19}).encode() + b"\n"
    upload = [line] * (2 * MAX_UPLOAD - 1)
    # The sum of chunks stands in no header.
    for body in (b"".join(upload), iter(upload)):
        client.json("documents", body)
    assert len(client.json("documents/long")["metadata"]["note"]) == 2**19
    for body in (b"".join(upload * 2), iter(upload * 2)):
        status, _, content = client.request("documents", body)
        # The service closes the connection, which nginx may find before it reads the answer.
        is_explained = f"at most {MAX_UPLOAD * 2**20:,} bytes" in content.decode()
        assert (status, is_explained) in ((413, True), (502, False))


@pytest.mark.parametrize("authorization", [None, basic("a loud harbor"), f"Bearer {TOKEN}"])
def test_request_without_the_password_is_refused_by_the_proxy(client, authorization):
    for path in ("", "page.js", "search?q=wind", "documents/a", "metrics", "openapi.json"):
        status, headers, content = client.request(path, headers={"Authorization": authorization})
        assert (status, headers["www-authenticate"].partition(" ")[0]) == (401, "Basic"), path
        assert b"apples" not in content


def test_address_outside_of_the_path_does_not_reach_the_service(client):
    for path in ("/search?q=wind", "/documents/a", "/search-notesx/info", "/info"):
        status, _, content = client.request(path)
        # Caddy answers what it does not serve with an empty body.
        assert status == 404 or content == b"", path


@pytest.mark.parametrize("kind", PROXIES)
def test_token_of_the_service_is_passed_on_without_a_password(kind, tmp_path, token_port):
    with proxy(kind, tmp_path, token_port, without_password) as port:
        client = Client(port, f"Bearer {TOKEN}")
        assert hits(client.json("search?q=wind&mode=bm25")) == ["b/c d"]
        for authorization in (None, "Bearer other", basic(PASSWORD)):
            answer = client.request("info", headers={"Authorization": authorization})
            assert (answer[0], answer[1]["www-authenticate"]) == (401, "Bearer")
        # The page asks for the token.
        assert client.request("", headers={"Authorization": None})[0] == 200


@pytest.mark.parametrize("kind", PROXIES)
def test_proxy_that_asks_for_the_password_sends_the_token(kind, tmp_path, token_port):
    with proxy(kind, tmp_path, token_port, with_token) as port:
        assert Client(port, basic(PASSWORD)).json("info")["default"] == "notes"
        for authorization in (None, f"Bearer {TOKEN}"):
            status, headers, _ = Client(port, authorization).request("info")
            assert (status, headers["www-authenticate"].partition(" ")[0]) == (401, "Basic")


@pytest.mark.parametrize("kind", PROXIES)
def test_password_does_not_reach_the_service(kind, tmp_path):
    requests = []

    class Recorder(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.headers)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Recorder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with proxy(kind, tmp_path, server.server_port) as port:
            assert Client(port, basic(PASSWORD)).request("info")[0] == 200
        server.shutdown()
    assert [headers["Host"] for headers in requests] == [f"{HOST}:{port}"]
    assert "Authorization" not in requests[0]


@pytest.mark.parametrize("kind", PROXIES)
def test_stopped_service_gives_502(kind, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        service_port = free.getsockname()[1]
    with proxy(kind, tmp_path, service_port) as port:
        assert Client(port, basic(PASSWORD)).request("health")[0] == 502
        assert Client(port, None).request("health")[0] == 401
