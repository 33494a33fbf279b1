"""What `import eval` promises: experiments as functions, and nothing heavy at import."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "faiss", "sklearn", "scipy", "matplotlib", "rank_bm25", "tqdm")


@pytest.mark.parametrize(
    "name",
    ["rank_systems", "score_sts", "score_transfer", "search_layers", "evaluate", "compare"],
)
def test_an_experiment_is_a_function_of_the_package(name):
    package = __import__("eval")
    assert callable(getattr(package, name))


def test_importing_the_package_imports_nothing_heavy():
    code = "import json, sys, eval; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(HEAVY) & set(json.loads(done.stdout))
