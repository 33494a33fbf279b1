"""`retriever serve`: serve indexes over HTTP, with a search page."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.index_access import follow, watch_option
from cli.options import (
    Command,
    EncoderOptions,
    Settings,
    config_option,
    configured_search,
    encoder_options,
    query_map_option,
    synonyms_option,
)
from cli.output.text import say
from cli.service_options import host_option, indexes_argument, open_indexes, token_option, url_host
from indexes.platforms import ending_signals
from retriever.settings import setting

if TYPE_CHECKING:
    import socket

    from fastapi import FastAPI

    from retriever.service import ServiceSettings


_MEBIBYTE = 2**20
# How long a request that writes waits for another process that is writing to the index, in s.
_LOCK_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Address, permissions and limits of the service."""

    port: int = setting(
        8765, "Port to listen on; 0 chooses a free port.", low=0, high=65_535, section="Service"
    )
    writable: bool = setting(
        False, "Allow clients to add, replace and delete documents.", section="Service"
    )
    allow_host: tuple[str, ...] = setting(
        (),
        "Host name that clients may use for the service, besides localhost and IP addresses; "
        "repeatable.",
        section="Service",
    )
    cors: tuple[str, ...] = setting(
        (),
        "Allow web pages of this origin to call the service, such as https://example.org; "
        "repeatable.",
        section="Service",
    )
    root_path: str = setting(
        "",
        "Path below which a proxy serves this service, such as /search. The proxy may keep or "
        "remove it.",
        section="Service",
    )
    open_files: bool = setting(
        False,
        "Let browsers on this machine open the files of documents; requires a --host of this "
        "machine.",
        section="Service",
    )
    rerank: Path | None = setting(
        None,
        "Reranker for requests that ask for it; see `retriever query`.",
        section="Ranking",
    )
    any_model: bool = setting(
        False,
        "Answer embedding and reranking requests for an unknown model with the first index.",
    )
    max_k: int = setting(1_000, "Maximum number of hits per query.", low=1)
    max_upload: int = setting(256, "Maximum size of an upload of documents in MiB.", low=1)
    timeout: float = setting(30.0, "Maximum time of a request in seconds.", low=0, low_open=True)
    queue: int = setting(
        1_024, "Maximum number of waiting queries; further queries get status 503.", low=1
    )

    def settings(self, token: str) -> ServiceSettings:
        """Return the settings of the service."""
        from retriever.service import ServiceSettings

        return ServiceSettings(
            token=token,
            writable=self.writable,
            hosts=tuple(name.lower() for name in self.allow_host),
            origins=self.cors,
            root_path=self.root_path,
            open_files=self.open_files,
            search=configured_search(),
            any_model=self.any_model,
            max_k=self.max_k,
            max_upload=self.max_upload * _MEBIBYTE,
            timeout=self.timeout,
            queue=self.queue,
        )


@click.command("serve", cls=Command)
@indexes_argument
@config_option
@host_option("listen")
@token_option
@watch_option
@Settings(
    "service",
    ServiceOptions,
    "port writable allow_host cors root_path open_files rerank",
    metavars={"allow_host": "NAME", "cors": "ORIGIN", "root_path": "PATH", "rerank": "FOLDER"},
)
@query_map_option
@synonyms_option
@encoder_options("each index's own", "dtype", default="each index's own")
def serve_command(
    indexes: tuple[str, ...],
    host: str,
    token: str,
    watch: bool,
    service: ServiceOptions,
    query_map: Path | None,
    synonyms: Path | None,
    encoder: EncoderOptions,
) -> None:
    """Serve indexes over HTTP, with a search page.

    Open the address in a browser to search; programs find a description at /openapi.json. An index
    has the name of its folder, without .index, unless you give it another NAME. The first index is
    the default. Without INDEX, `retriever serve` opens the index that RETRIEVER_INDEX names, else
    .retriever. Each query sees the documents that any process has added. Ctrl-C and SIGTERM stop
    the service after running requests end, at most 30 seconds later.
    """
    from retriever.errors import require_extra
    from retriever.search import load_reranker

    require_extra("serve", "the service", "fastapi", "uvicorn", "prometheus_client")
    if watch:
        require_extra("watch", "--watch", "watchfiles")
    from retriever.service import create_app, open_socket

    _refuse_conflicts(host, token, service)
    settings = service.settings(token)
    reranker = None
    if service.rerank is not None:
        reranker = load_reranker(service.rerank, device=encoder.device, download=encoder.download)
    with ExitStack() as stack:
        named_indexes = open_indexes(
            stack, indexes, query_map, synonyms, encoder, lock_timeout=_LOCK_TIMEOUT
        )
        app = create_app(named_indexes, settings, reranker=reranker)
        listening = stack.enter_context(open_socket(host, service.port))
        if watch:
            stop = threading.Event()
            stack.callback(stop.set)
            for index in named_indexes.values():
                threading.Thread(target=follow, args=(index, stop), daemon=True).start()
        _run(app, listening)


def _refuse_conflicts(host: str, token: str, service: ServiceOptions) -> None:
    """Refuse options that would let other machines do too much."""
    from retriever.service import is_loopback

    if not token and not is_loopback(host):
        raise click.UsageError(
            f"--host {host} is open to other machines; give --token, or set RETRIEVER_TOKEN"
        )
    if service.open_files and not is_loopback(host):
        raise click.UsageError(
            "--open-files works only on this machine, but other machines can reach --host "
            f"{host}; leave one of the two out"
        )
    if service.open_files and (service.root_path or service.allow_host):
        raise click.UsageError(
            "--open-files works only on this machine, but --root-path and --allow-host are for "
            "other machines; leave it out, or leave them out"
        )


def _run(app: FastAPI, listening: socket.socket) -> None:
    """Serve until a signal ends the service."""
    import warnings

    from retriever.service import create_server

    # Warnings of a filter are part of the answer. A truncated text is no news for the server's log.
    warnings.filterwarnings("ignore", message="(filter|facets): no document|.*were cut$")
    host, port = listening.getsockname()[:2]
    say(f"search page at http://{url_host(host)}:{port}/; Ctrl-C ends", err=False)
    # uvicorn raises the signal again after the last request. That is no failure.
    for number in ending_signals():
        signal.signal(number, lambda *_: None)
    # Collections of garbage stop all clients. They are rare, and leave out imported modules.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    # The thread of the connections gets its turn soon while other threads compute in Python.
    sys.setswitchinterval(5e-4)
    create_server(app).run(sockets=[listening])
