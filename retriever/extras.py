"""Optional dependencies, by the extra that installs them."""

from __future__ import annotations

from importlib.util import find_spec

from retriever.errors import MissingExtraError

# Module to the package that is installed, where they have different names.
_PACKAGES = {"sklearn": "scikit-learn", "rank_bm25": "rank-bm25"}


def require_extra(extra: str, purpose: str, *modules: str) -> None:
    """Make sure that optional modules are installed, without importing them.

    Args:
        extra: brings them.
        purpose: what needs them, the subject of the message's sentence.
        modules: their import names.

    Raises:
        MissingExtraError: one of them is not installed; names the extra.
    """
    for module in modules:
        if find_spec(module) is None:
            raise MissingExtraError(
                f"{purpose} needs {_PACKAGES.get(module, module)}, which is not installed: "
                f'pip install "layer-retriever[{extra}]"'
            )


def require_classifiers() -> None:
    """Make sure that scikit-learn and scipy are installed.

    Raises:
        MissingExtraError: one of them is not.
    """
    require_extra("sentences", "classification", "scipy", "sklearn")
