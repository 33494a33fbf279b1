"""Messages are cleaned of what steers a terminal in one place."""

import ast

import pytest

from tests.architecture.test_imports import MODULES, ROOT

CLI = [path for path in MODULES if path.relative_to(ROOT).parts[0] == "cli"]


@pytest.mark.parametrize("path", CLI, ids=lambda path: str(path.relative_to(ROOT)))
def test_messages_are_printed_by_the_function_that_cleans_them(path):
    """`click.echo` is for JSON, tables and hits, which functions of `cli.output` make."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "print"):
            text = [one for one in ast.walk(node) if isinstance(one, ast.JoinedStr)]
            assert not text, f"line {node.lineno}: use cli.output.text.say"
