"""The names of `retriever.mcp`; `__init__.py` imports each on first use."""

from retriever.mcp.server import make_server as make_server
from retriever.mcp.server import serve_http as serve_http
from retriever.mcp.server import serve_stdio as serve_stdio
