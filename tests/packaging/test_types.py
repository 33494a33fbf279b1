"""A user's script that `make lint` gives to `mypy --strict` uses the whole API."""

from pathlib import Path

import retriever


def test_user_script_uses_every_exported_name_except_error_classes():
    text = Path(__file__).with_name("user_script.py").read_text()
    public = [name for name in dir(retriever) if _is_api(name, getattr(retriever, name))]
    assert len(public) > 30
    assert not [name for name in public if name not in text and not name.endswith("Error")]


def _is_api(name, value):
    return not name.startswith("_") and type(value).__name__ != "module"
