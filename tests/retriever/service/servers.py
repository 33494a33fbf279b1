"""A service in a thread of the test's process, or in a process of its own."""

import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager

from retriever.service import ServiceSettings, create_app, serving

COMMAND = "import sys; from cli.main import run; sys.exit(run(sys.argv[1:]))"


@contextmanager
def running(index, server=None, **settings):
    """A server in a thread of this process, and its port."""
    app = create_app({"index": index}, ServiceSettings(**settings))
    server = serving.create_server(app, **(server or {}))
    with serving.open_socket("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield server, port
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def started(*arguments, program=COMMAND):
    """`retriever serve` as a process, and its port."""
    with subprocess.Popen(
        [sys.executable, "-c", program, "serve", *map(str, arguments), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RETRIEVER_TOKEN": ""},
    ) as process:
        try:
            address = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
            yield process, int(address[1])
        finally:
            process.kill()
