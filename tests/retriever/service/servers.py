"""A service in a thread of the test's process."""

import threading
from contextlib import contextmanager

from retriever.service import ServiceSettings, create_app, serving


@contextmanager
def running(index, server=None, **settings):
    """A server in a thread of this process, and its port."""
    app = create_app({"index": index}, ServiceSettings(**settings))
    server = serving.server_of(app, **(server or {}))
    with serving.bound_socket("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield server, port
        finally:
            server.should_exit = True
            thread.join()
