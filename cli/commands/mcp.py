"""`retriever mcp`: serve indexes to agents."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click

from cli.options import (
    Command,
    EncoderOptions,
    encoder_options,
    option,
    query_map_option,
    synonyms_option,
)
from cli.output.text import say
from cli.service_options import host_option, indexes_argument, open_indexes, token_option, url_host


@click.command("mcp", cls=Command)
@indexes_argument
@option(
    "--http",
    "port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Port for HTTP at /mcp, instead of standard input and output.",
    section="Service",
)
@host_option("serve")
@token_option
@query_map_option
@synonyms_option
@encoder_options("each index's own", "dtype", default="each index's own")
def mcp_command(
    indexes: tuple[str, ...],
    port: int | None,
    host: str,
    token: str,
    query_map: Path | None,
    synonyms: Path | None,
    encoder: EncoderOptions,
) -> None:
    """Serve indexes to agents over the Model Context Protocol.

    The tools `search`, `get` and `status` read the indexes and change nothing. An index has the
    name of its folder, without .index, unless you give it another NAME. Without INDEX, `retriever
    mcp` opens the index that RETRIEVER_INDEX names, else .retriever. The command ends at the end of
    the client's input, or with Ctrl-C.
    """
    from importlib.metadata import version

    from retriever.errors import require_extra

    require_extra("mcp", "retriever mcp", "mcp")
    from retriever.mcp import make_server, serve_http, serve_stdio

    with ExitStack() as stack:
        opened = open_indexes(stack, indexes, query_map, synonyms, encoder)
        server = make_server(opened, version("layer-retriever"))
        if port is None:
            serve_stdio(server)
        else:
            url = f"http://{url_host(host)}:{port}/mcp"
            serve_http(server, host, port, token or None, lambda: say(f"{url} (Ctrl-C ends)"))
