"""What the evaluation of sentence vectors needs beyond the package's own dependencies."""

from __future__ import annotations

from importlib.util import find_spec

from retriever.errors import MissingExtraError


def require_sentence_extra() -> None:
    """Make sure that scipy and scikit-learn are installed.

    Raises:
        MissingExtraError: one of them is not; says which extra brings it.
    """
    for module, name in (("scipy", "scipy"), ("sklearn", "scikit-learn")):
        if find_spec(module) is None:
            raise MissingExtraError(
                f"the evaluation of sentence vectors needs {name}, which is not installed: "
                'pip install "layer-retriever[sentences]"'
            )
