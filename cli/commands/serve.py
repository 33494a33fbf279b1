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
from retriever.settings import setting

if TYPE_CHECKING:
    import socket

    from fastapi import FastAPI


_MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Who may do what, and limits."""

    port: int = setting(
        8765, "Port to listen on; 0 takes a free one.", low=0, high=65_535, section="Service"
    )
    writable: bool = setting(
        False, "Let clients add, replace and delete documents.", section="Service"
    )
    allow_host: tuple[str, ...] = setting(
        (),
        "Host name under which clients reach the service, besides localhost and IP addresses; "
        "repeatable.",
        section="Service",
    )
    cors: tuple[str, ...] = setting(
        (),
        "Let web pages of this origin call the service, such as https://example.org; repeatable.",
        section="Service",
    )
    root_path: str = setting(
        "",
        "Path below which a proxy serves this, such as /search of https://example.org/search/; the "
        "proxy may take it off or not.",
        section="Service",
    )
    open_files: bool = setting(
        False,
        "Let browsers on this machine open the files of documents; needs a --host of this machine "
        "alone.",
        section="Service",
    )
    rerank: Path | None = setting(
        None,
        "Reranker for requests that ask for it, as of `retriever query`.",
        section="Ranking",
    )
    any_model: bool = setting(
        False,
        "Answer requests for embeddings and reranking that name an unknown model by the first "
        "index.",
    )
    max_k: int = setting(1_000, "Maximum number of hits of a query.", low=1)
    max_upload: int = setting(256, "Maximum size of an upload of documents in MiB.", low=1)
    timeout: float = setting(
        30.0, "Time in seconds after which a request is given up.", low=0, low_open=True
    )
    queue: int = setting(
        1_024, "Maximum number of queries that wait; more are refused with status 503.", low=1
    )


@click.command("serve", cls=Command)
@indexes_argument
@config_option
@host_option("listen")
@token_option
@watch_option
@Settings(
    "asked",
    ServiceOptions,
    "port writable allow_host cors root_path open_files rerank",
    metavars={"allow_host": "NAME", "cors": "ORIGIN", "root_path": "PATH", "rerank": "FOLDER"},
)
@query_map_option
@synonyms_option
@encoder_options("each index's own", "dtype", own="each index's own")
def serve_command(
    indexes: tuple[str, ...],
    host: str,
    token: str,
    watch: bool,
    asked: ServiceOptions,
    query_map: Path | None,
    synonyms: Path | None,
    encoder: EncoderOptions,
) -> None:
    """Serve indexes over HTTP, with a search page.

    The page is at /, and a description for programs at /openapi.json. Each index has the name of
    its folder, without .index, unless another NAME is given; the first one is the default. Without
    INDEX, serves the index that RETRIEVER_INDEX names, else .retriever. Documents that any process
    adds are found by the next query. Ctrl-C and SIGTERM stop the service once running requests end,
    or after 30 seconds.
    """
    from retriever.errors import require_extra
    from retriever.search import load_reranker

    require_extra("serve", "the service", "fastapi", "uvicorn", "prometheus_client")
    if watch:
        require_extra("watch", "--watch", "watchfiles")
    from retriever.service import ServiceSettings, bound_socket, create_app, is_loopback

    if not token and not is_loopback(host):
        raise click.UsageError(
            f"--host {host} can be reached from other machines: give --token, or set "
            "RETRIEVER_TOKEN"
        )
    if asked.open_files and not is_loopback(host):
        raise click.UsageError(
            f"--open-files gives files to this machine alone, and --host {host} can be reached "
            "from other machines: leave out one of them"
        )
    if asked.open_files and (asked.root_path or asked.allow_host):
        raise click.UsageError(
            "--open-files gives files to this machine alone, and --root-path and --allow-host are "
            "for clients of other machines: leave out one of them"
        )
    settings = ServiceSettings(
        token=token,
        writable=asked.writable,
        hosts=tuple(name.lower() for name in asked.allow_host),
        origins=asked.cors,
        root_path=asked.root_path,
        open_files=asked.open_files,
        search=configured_search(),
        any_model=asked.any_model,
        max_k=asked.max_k,
        max_upload=asked.max_upload * _MEBIBYTE,
        timeout=asked.timeout,
        queue=asked.queue,
    )
    reranker = None
    if asked.rerank is not None:
        reranker = load_reranker(asked.rerank, device=encoder.device, download=encoder.download)
    with ExitStack() as stack:
        opened = open_indexes(stack, indexes, query_map, synonyms, encoder, lock_timeout=5.0)
        app = create_app(opened, settings, reranker=reranker)
        listening = stack.enter_context(bound_socket(host, asked.port))
        if watch:
            stop = threading.Event()
            stack.callback(stop.set)
            for index in opened.values():
                threading.Thread(target=follow, args=(index, stop), daemon=True).start()
        _run(app, listening)


def _run(app: FastAPI, listening: socket.socket) -> None:
    import warnings

    from retriever.service import server_of

    # A filter's are part of the answer, and a cut query or passage is no news to the server's log.
    warnings.filterwarnings("ignore", message="(filter|facets): no document|.*were cut$")
    host, port = listening.getsockname()[:2]
    say(f"search page at http://{url_host(host)}:{port}/; Ctrl-C ends", err=False)
    # uvicorn raises the signal again when it has drained: ending so is no failure.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    # Collections let all clients wait: they are rare, and leave out what was imported.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    # The thread of the connections has its turn soon, whatever the others compute in Python.
    sys.setswitchinterval(5e-4)
    server_of(app).run(sockets=[listening])
