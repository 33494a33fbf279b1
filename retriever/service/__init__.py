"""Search over HTTP: the routes, the search page and what guards them.

>>> from retriever.service import ServiceSettings, create_app     # doctest: +SKIP
>>> app = create_app({"docs": Index.open("my.index")})            # doctest: +SKIP

It calls the Python API and computes nothing itself.

- `app.py`: the application; `routes/` has its addresses, and the searches that arrive together
  (`search_jobs.py`).
- `schemas.py`: requests as pydantic models.
- `batching.py`: requests that arrive together run as one batch.
- `guard.py`: who may call, how much and for how long; `faults.py`: errors as JSON.
- `serving.py`: the server that runs the application: its connections, and how it ends.
- `page/`: the search page; `reference.py`: the page at /docs.
"""

from retriever.service.app import create_app as create_app
from retriever.service.settings import ServiceSettings as ServiceSettings
