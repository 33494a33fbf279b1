"""The imports tell the architecture: cli, eval, retriever, indexes, in that order, never back."""

import ast
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ["indexes", "retriever", "eval", "cli"]
HEAVY = {"torch", "transformers", "faiss", "sentence_transformers", "pyarrow", "matplotlib", "ray"}
# Their classes are torch's own kind; others import these modules where they are used.
TORCH_CLASSES = {
    "retriever.rerankers.scorers",
    "retriever.training.adapters",
}
MODULES = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


def _imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node, node.module.split(".")[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_from_its_own_layer_and_those_below_it(path):
    layer = LAYERS.index(path.relative_to(ROOT).parts[0])
    above = set(LAYERS[layer + 1 :])
    tree = ast.parse(path.read_text())
    assert not {name for _, name in _imports(tree)} & above


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_heavy_libraries_are_imported_where_they_are_used(path):
    tree = ast.parse(path.read_text())
    at_top = {name for node, name in _imports(tree) if node in tree.body}
    allowed = {"torch"} if _module(path) in TORCH_CLASSES else set()
    assert not at_top & HEAVY - allowed


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_that_are_torch_are_imported_where_they_are_used(path):
    tree = ast.parse(path.read_text())
    at_top = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert not at_top & TORCH_CLASSES


def test_no_modules_import_each_other():
    """Within functions either; names for types alone do not count."""
    names = {_module(path).removesuffix(".__init__"): path for path in MODULES}
    graph = {name: _imported_modules(path, names) - {name} for name, path in names.items()}
    # `Index.reindex` is another name of it.
    graph["retriever.index"].discard("retriever.index.recreation")
    # Raises CycleError, which names the modules.
    graphlib.TopologicalSorter(graph).prepare()


def _imported_modules(path, names):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & names.keys()
            found |= inner or {node.module}
    return found & names.keys()


def test_only_retriever_enters_indexes_and_through_its_facade():
    for layer in ("retriever", "eval", "cli"):
        allowed = {"indexes"} if layer == "retriever" else set()
        for path in (ROOT / layer).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = []
                if isinstance(node, ast.ImportFrom):
                    names = [node.module or ""]
                elif isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                entered = {name for name in names if name.split(".")[0] == "indexes"}
                assert entered <= allowed, path


def _module(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)
