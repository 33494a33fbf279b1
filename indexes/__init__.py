"""Where an index is kept: vectors, tokens and ids, never models; see docs/design/architecture.md.

`indexes.bm25`, `indexes.filters` and `indexes.vectors` offer their own names.
"""

from __future__ import annotations

from indexes.facade import lazy_names

__getattr__ = lazy_names(__name__)
