"""Shell commands that messages name, in a form that the user can paste."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

_PACKAGE = "layer-retriever"


def program(name: str) -> str:
    """Return how a shell calls a program of this environment: by name, or by path if need be."""
    own = Path(sys.executable).with_name(name)
    on_path = shutil.which(name)
    if not own.exists() or (on_path is not None and Path(on_path) == own):
        return name
    return shlex.quote(str(own))


def install_command(extra: str) -> str:
    """Return the command that installs an extra, from a clone if this package came from one."""
    source = _PACKAGE
    options = ""
    with suppress(PackageNotFoundError, ValueError, LookupError, TypeError, AttributeError):
        origin = json.loads(distribution(_PACKAGE).read_text("direct_url.json") or "{}")
        if "dir_info" in origin:
            source = url2pathname(urlsplit(origin["url"]).path)
            options = "-e " if origin["dir_info"].get("editable") else ""
    requirement = f"{source}[{extra}]"
    return f"{program('pip')} install {options}{shlex.quote(requirement)}"
