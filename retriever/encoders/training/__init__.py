"""Fine-tuning an encoder: settings, objectives, examples, and the folder it makes."""

from __future__ import annotations

from indexes.facade import lazy_names

__getattr__ = lazy_names(__name__)
