"""Search over HTTP: the routes, the search page and what guards them.

>>> from retriever.service import ServiceSettings, create_app     # doctest: +SKIP
>>> app = create_app({"docs": Index.open("my.index")})            # doctest: +SKIP

It calls the Python API and computes nothing itself: `app.py` makes the application from the routes
of `searching.py`, `documents.py` and `compatible.py`; `guard.py` stands before them, and
`serving.py` is the server that runs it.
"""

from __future__ import annotations

from indexes.facade import lazy_names

__getattr__ = lazy_names(__name__)
