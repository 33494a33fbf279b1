"""Error messages say in few words what is wrong, what was found, and what to do."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("indexes", "retriever", "eval", "cli")
# Words of a message, and of the part of it between two marks of punctuation.
LONGEST = 38
LONGEST_CLAUSE = 30
PRIVATE_DIALECT = re.compile(
    r"\b(of which|those of|those that|that of|as of|likewise|"
    r"(?:the|a|an|another|other|no|better|new) one|is refused|are refused)\b"
)
REPORTS = {"warn", "say", "refuse", "fail", "damaged"}


def text_of(node):
    """Return the text of a string, with X for what a format string fills in; None for others."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else "X" for part in node.values
        )
    if isinstance(node, ast.BinOp):
        return (text_of(node.left) or "X") + (text_of(node.right) or "X")
    return None


def messages(tree):
    """Yield the line and text of each message that a module raises, warns of or prints."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        if name in REPORTS or name.endswith(("Error", "BadParameter")):
            for argument in node.args:
                if text := text_of(argument):
                    yield node.lineno, text


@pytest.fixture(scope="module")
def texts():
    """Messages of the product by place."""
    return {
        f"{path.relative_to(ROOT)}:{line}": text
        for package in PRODUCT
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, text in messages(ast.parse(path.read_text("utf-8")))
    }


def test_messages_are_short(texts):
    assert len(texts) > 700
    assert {
        place: text
        for place, text in texts.items()
        if len(text.split()) > LONGEST
        or any(len(part.split()) > LONGEST_CLAUSE for part in re.split(r"[.;:] ", text))
    } == {}


def test_messages_use_no_private_dialect(texts):
    faults = {place: text for place, text in texts.items() if PRIVATE_DIALECT.search(text)}
    assert faults == {}


def test_messages_of_a_module_are_found_with_their_lines():
    source = 'def f(x):\n    raise ValueError(f"{x}: expected 1; " + "give one that fits")\n'
    ((line, text),) = messages(ast.parse(source))
    assert (line, text) == (2, "X: expected 1; give one that fits")
