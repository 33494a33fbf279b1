"""The imports tell the architecture: cli, eval, retriever, indexes, in that order, never back."""

import ast
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ["indexes", "retriever", "eval", "cli"]
HEAVY = {"torch", "transformers", "faiss", "sentence_transformers", "pyarrow", "matplotlib", "ray"}
STORES = ["folder", "milvus", "postgres"]
# Modules of `indexes` that every package may import, and those that `retriever` may.
SHARED_ENTRIES = {"indexes.errors", "indexes.platforms", "indexes.settings"}
RETRIEVER_ENTRIES = SHARED_ENTRIES | {
    "indexes",
    "indexes.bm25",
    "indexes.facade",
    "indexes.files",
    "indexes.filters",
    "indexes.vectors",
}
# Names that a façade of `indexes` offers.
MAX_INDEXES_NAMES = 25
# Modules that import each other, where one of the imports is for types. Only to shrink.
TYPED_CIRCLES = [
    {
        "retriever.encoders.registry",
        "retriever.encoders.transformer.model",
        "retriever.encoders.transformer.piece_model",
    },
]
# Their classes are torch's own kind; others import these modules where they are used.
TORCH_CLASSES = {"retriever.rerankers.scorers"}


@pytest.fixture(scope="module")
def trees():
    paths = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]
    return {path: ast.parse(path.read_text()) for path in paths}


def _imports(nodes):
    """The nodes of imports, each with a module that it names."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node, node.module


def test_a_module_imports_from_its_own_layer_and_those_below_it(trees):
    for path, tree in trees.items():
        layer = LAYERS.index(path.relative_to(ROOT).parts[0])
        packages = {name.split(".")[0] for _, name in _imports(ast.walk(tree))}
        assert not packages & set(LAYERS[layer + 1 :]), path


def test_heavy_libraries_are_imported_where_they_are_used(trees):
    for path, tree in trees.items():
        at_top = {name.split(".")[0] for _, name in _imports(tree.body)}
        assert not at_top & HEAVY - ({"torch"} if _module(path) in TORCH_CLASSES else set()), path


def test_modules_that_are_torch_are_imported_where_they_are_used(trees):
    for path, tree in trees.items():
        assert not {name for _, name in _imports(tree.body)} & TORCH_CLASSES, path


def test_no_modules_import_each_other(trees):
    """Within functions either; names for types alone do not count."""
    names = {_module(path).removesuffix(".__init__"): path for path in trees}
    graph = {name: _imported(trees[path], names) - {name} for name, path in names.items()}
    # Raises CycleError, which names the modules.
    graphlib.TopologicalSorter(graph).prepare()


def test_types_close_no_circle_but_these(trees):
    """Imports for types counted."""
    names = {_module(path).removesuffix(".__init__"): path for path in trees}
    circles = _circles({name: _named(trees[path], names) for name, path in names.items()})
    assert all(any(circle <= known for known in TYPED_CIRCLES) for circle in circles), circles


def _circles(graph):
    """The largest sets of modules in which each imports each other, directly or not."""
    reached = {}
    for name in graph:
        modules = list(graph[name])
        seen = set(modules)
        for module in modules:
            modules += graph[module] - seen
            seen |= graph[module]
        reached[name] = seen
    circles = {
        frozenset(module for module in seen | {name} if name in reached[module])
        for name, seen in reached.items()
    }
    return {circle for circle in circles if len(circle) > 1}


def _named(tree, names):
    """The modules that its imports name, wherever they stand."""
    modules = set()
    for node, name in _imports(ast.walk(tree)):
        inner = set()
        if isinstance(node, ast.ImportFrom):
            inner = {f"{name}.{alias.name}" for alias in node.names} & names.keys()
        modules |= inner or {name}
    return modules & names.keys()


def _imported(tree, names):
    """The modules that its code imports when it runs."""
    nodes, found = [tree], set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & names.keys()
            found |= inner or {node.module}
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
            nodes += [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.stmt)]
        else:
            nodes += node.orelse
    return found & names.keys()


def test_other_packages_enter_indexes_through_its_facades_errors_and_settings(trees):
    """Only `retriever` imports from the façades themselves."""
    for path, tree in trees.items():
        package = path.relative_to(ROOT).parts[0]
        entered = {name for _, name in _imports(ast.walk(tree)) if name.split(".")[0] == "indexes"}
        if package != "indexes":
            entries = RETRIEVER_ENTRIES if package == "retriever" else SHARED_ENTRIES
            assert entered <= entries, path


def test_facades_of_indexes_stay_small():
    for path in (ROOT / "indexes").rglob("__init__.pyi"):
        lines = path.read_text().splitlines()
        assert sum(line.startswith("from ") for line in lines) <= MAX_INDEXES_NAMES, path


def test_shared_modules_of_indexes_import_no_store(trees):
    """Bm25, vectors, filters, facets, the protocol and the other modules that all stores use."""
    for path, tree in trees.items():
        parts = path.relative_to(ROOT).parts
        # The location chooses the store.
        if parts[0] == "indexes" and parts[1] not in (*STORES, "location.py"):
            assert not _imported_stores(tree), path


def test_no_store_imports_another(trees):
    for path, tree in trees.items():
        parts = path.relative_to(ROOT).parts
        if parts[0] == "indexes" and parts[1] in STORES:
            assert _imported_stores(tree) <= {parts[1]}, path


def _imported_stores(tree):
    names = [name.split(".") for _, name in _imports(ast.walk(tree))]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "indexes":
            names += [["indexes", alias.name] for alias in node.names]
    return {name[1] for name in names if name[0] == "indexes" and name[1:]} & set(STORES)


def _module(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def test_messages_are_printed_by_the_function_that_cleans_them(trees):
    """`click.echo` is for JSON, tables and hits, which functions of `cli.output` make."""
    for path, tree in trees.items():
        if path.relative_to(ROOT).parts[0] != "cli":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "print"):
                text = [one for one in ast.walk(node) if isinstance(one, ast.JoinedStr)]
                assert not text, f"{path}, line {node.lineno}: use cli.output.text.say"
