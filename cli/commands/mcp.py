"""`retriever mcp`: indexes as tools for agents."""

from __future__ import annotations

from contextlib import ExitStack

import click

from cli.options import (
    Command,
    EncoderOptions,
    encoder_options,
    indexes_argument,
    named_indexes,
    option,
)
from cli.output.text import say


@click.command("mcp", cls=Command)
@indexes_argument
@option(
    "--http",
    "port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Serve over HTTP at /mcp on this port instead of standard input and output.",
    section="Service",
)
@option(
    "--host",
    default="127.0.0.1",
    metavar="ADDRESS",
    help="Address to serve on; one that other machines can reach needs --token.",
    section="Service",
)
@option(
    "--token",
    metavar="TEXT",
    envvar="RETRIEVER_TOKEN",
    show_envvar=True,
    help="Answer only requests with the header `Authorization: Bearer TEXT`.",
    section="Service",
)
@encoder_options("each index's own", "dtype", "each index's own")
def mcp_command(
    indexes: tuple[str, ...],
    port: int | None,
    host: str,
    token: str | None,
    encoder: EncoderOptions,
) -> None:
    """Serve indexes to agents over the Model Context Protocol.

    The tools `search`, `get` and `status` read the indexes and change nothing. Each index has the
    name of its folder, without .index, unless another NAME is given. Without INDEX, serves the
    index that RETRIEVER_INDEX names, else .retriever. Ends with the client's input, or with Ctrl-C.
    """
    from importlib.metadata import version

    from retriever.errors import require_extra
    from retriever.index import Index

    require_extra("mcp", "retriever mcp", "mcp")
    from retriever.mcp.server import make_server, serve_http, serve_stdio

    choice = encoder.choice()
    with ExitStack() as stack:
        opened = {
            name: stack.enter_context(
                Index.open(store, choice.encoder, device=choice.device, download=choice.download)
            )
            for name, store in named_indexes(indexes).items()
        }
        server = make_server(opened, version("layer-retriever"))
        if port is None:
            serve_stdio(server)
        else:
            address = f"[{host}]" if ":" in host else host
            url = f"http://{address}:{port}/mcp"
            serve_http(server, host, port, token, lambda: say(f"{url} (Ctrl-C ends)"))
