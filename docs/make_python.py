"""Writes build/docs/reference/python.md: the text of python.md, and the docstrings of public names.

The comment `reference: NAME ...` of that page is replaced by the reference of those names of
`retriever`, `errors` by a table of its errors, and `eval` by a short list of the names of `eval`.
Every public name of `retriever` must be placed exactly once.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from retriever.settings import declared_settings

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "reference/python.md"
PAGE = FOLDER.parent / "build/docs/reference/python.md"
_MARK = re.compile(r"<!-- (errors|eval|reference: (?P<names>.*)) -->")
_WIDTH = 100
_SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Raises on entry")
# How callers write them.
_SPECIAL = {
    "__len__": "len({owner})",
    "__contains__": "id in {owner}",
    "__getitem__": "{owner}[id]",
    "__iter__": "for document in {owner}",
}
_PACKAGES = ("indexes", "retriever", "eval")
_MADE_ELSEWHERE = "ake one with"
# How settings are stored is no part of the API.
_INTERNAL = ("from_json", "to_json")
_ERRORS = re.compile(r"^(What |([A-Z]\w*Error(, |; )?)+(:|$| ))")


def reference() -> str:
    """The content of the page."""
    names = public_names("retriever")
    parts = []
    for line in SOURCE.read_text("utf-8").splitlines():
        mark = _MARK.fullmatch(line)
        if mark is None:
            parts.append(line)
        elif mark["names"]:
            for name in mark["names"].split():
                parts.append(_joined(_entry(name, names.pop(name))) + "\n")
        else:
            made = _error_table(names) if mark[1] == "errors" else _short("eval")
            parts.append(_joined(made))
    if names:
        raise SystemExit(f"{SOURCE}: place the names {', '.join(names)}")
    return "\n".join(parts).rstrip("\n") + "\n"


def public_names(package: str) -> dict[str, Any]:
    """The names that a package lists in its `__init__`, or the stub beside it, in that order."""
    module = importlib.import_module(package)
    stub = Path(inspect.getfile(module)).with_suffix(".pyi")
    tree = ast.parse(stub.read_text("utf-8") if stub.exists() else inspect.getsource(module))
    listed = [
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in _PACKAGES
        for alias in node.names
    ]
    return {name: getattr(module, name) for name in listed if not name.startswith("_")}


def _entry(name: str, value: Any) -> Iterator[str]:
    yield f"### `{name}`\n"
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        yield f"`{str(value).removeprefix('typing.')}`\n"
        return
    if _is_built(value) and _MADE_ELSEWHERE not in (inspect.getdoc(value) or ""):
        yield _code(_signature(name, value))
    yield from _text(value)
    if is_dataclass(value):
        yield from _settings(value)
    if inspect.isclass(value):
        for member, attribute in _members(value):
            if member in _INTERNAL or (member.startswith("_") and member not in _SPECIAL):
                continue
            yield from _member(name, member, attribute)


def _settings(owner: Any) -> Iterator[str]:
    """What is declared with the fields of a dataclass."""
    declared = declared_settings(owner)
    if declared:
        yield "**Attributes:**\n"
    for one in declared.values():
        values = f"; {one.expected}" if one.expected != "text" else ""
        source = f"; {one.source}" if one.source else ""
        default = f"Default: {one.default_text}{values}{source}."
        yield f"- `{one.name}`: {_prose(one.description)} {default}"
    yield ""


def _members(owner: type) -> Iterator[tuple[str, Any]]:
    """The members of a class, then those of bases that are public through it alone."""
    yield from vars(owner).items()
    public = public_names("retriever").values()
    for base in owner.__mro__[1:]:
        if base.__module__.startswith("retriever.") and base not in public:
            yield from ((name, one) for name, one in vars(base).items() if name not in vars(owner))


def _member(owner: str, name: str, attribute: Any) -> Iterator[str]:
    if isinstance(attribute, property):
        returned = inspect.signature(attribute.fget).return_annotation  # type: ignore[arg-type]
        yield f"#### `{owner}.{name}`\n"
        yield _code(f"{name}: {returned}")
        yield from _text(attribute.fget)
        return
    function = (
        attribute.__func__ if isinstance(attribute, classmethod | staticmethod) else attribute
    )
    if not inspect.isfunction(function):
        return
    if name in _SPECIAL:
        yield f"#### `{_SPECIAL[name].format(owner=owner.lower())}`\n"
        yield from _text(function)
        return
    yield f"#### `{owner}.{name}`\n"
    called = f"{owner}.{name}" if function is not attribute else name
    yield _code(_signature(called, function, method=not isinstance(attribute, staticmethod)))
    yield from _text(function)


def _short(package: str) -> Iterator[str]:
    """Name, signature and first paragraph of each public name of a package."""
    for name, value in public_names(package).items():
        yield f"### `{name}`\n"
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            yield f"`{str(value).removeprefix('typing.')}`\n"
            continue
        if _is_built(value):
            yield _code(_signature(name, value))
        document = _without_examples(inspect.getdoc(value) or "")
        yield _prose(document.partition("\n\n")[0]) + "\n"


def _is_built(value: Any) -> bool:
    """Whether callers call it: a function, or a class that is more than a protocol or an error."""
    return not (inspect.isclass(value) and (_is_protocol(value) or issubclass(value, Exception)))


def _is_protocol(value: type) -> bool:
    return bool(getattr(value, "_is_protocol", False))


def _error_table(names: dict[str, Any]) -> Iterator[str]:
    errors = [
        name
        for name, value in names.items()
        if inspect.isclass(value) and issubclass(value, Exception)
    ]
    yield "| error | is a | exit code | |"
    yield "|---|---|---|---|"
    for name in errors:
        value = names.pop(name)
        text = _prose(_without_examples(inspect.getdoc(value) or "").partition("\n\n")[0])
        base = value.__base__.__name__
        yield f"| `{name}` | `{base}` | {value.exit_code} | {text} |"
    yield ""


def _signature(name: str, value: Any, *, method: bool = False) -> str:
    """As a call, on one line or with one argument a line."""
    if is_dataclass(value) and inspect.isclass(value):
        arguments = [f"{one.name}: {one.type}{_default(one)}" for one in fields(value)]
        returned = ""
    else:
        try:
            signature = inspect.signature(value)
        except ValueError:  # a class written in C
            return name
        parameters = list(signature.parameters.values())
        arguments = _arguments(parameters[1:] if method else parameters)
        shown = signature.return_annotation
        returned = "" if inspect.isclass(value) or shown in ("None", None) else f" -> {shown}"
        if _is_context(value):
            returned = returned.replace("Iterator[", "AbstractContextManager[")
    line = f"{name}({', '.join(arguments)}){returned}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {one}," for one in arguments), f"){returned}"])


def _is_context(value: Any) -> bool:
    return inspect.isgeneratorfunction(inspect.unwrap(value)) and value != inspect.unwrap(value)


def _arguments(parameters: list[inspect.Parameter]) -> list[str]:
    shown: list[str] = []
    keyword_only = False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            shown.append("*")
        text = str(one.replace(default=one.empty)).replace("'", "")
        if one.annotation is not one.empty:
            star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
            text = f"{star}{one.name}: {one.annotation}"
        if one.default is not one.empty:
            default = "..." if callable(one.default) else repr(one.default)
            text += f" = {default}"
        shown.append(text)
    return shown


def _default(field: Any) -> str:
    if field.default is not MISSING:
        return f" = {field.default!r}"
    return "" if field.default_factory is MISSING else " = ..."


def _text(value: Any) -> Iterator[str]:
    """A docstring as Markdown."""
    document = _without_examples(inspect.getdoc(value) or "")
    if not document:
        return
    pieces = re.split(rf"^({'|'.join(_SECTIONS)}):\s*$", document, flags=re.MULTILINE)
    for paragraph in pieces[0].strip().split("\n\n"):
        yield _prose(paragraph) + "\n"
    for heading, body in zip(pieces[1::2], pieces[2::2], strict=True):
        after = ""
        lines = textwrap.dedent(body).strip("\n").splitlines()
        indented = [line for line in body.strip("\n").splitlines() if line.strip()]
        if indented and not indented[-1].startswith(" "):
            # Paragraphs that follow the section.
            kept = [i for i, line in enumerate(body.splitlines()) if line[:1].strip()]
            rest = body.splitlines()[kept[0] :]
            lines = (
                textwrap.dedent("\n".join(body.splitlines()[: kept[0]])).strip("\n").splitlines()
            )
            after = "\n".join(rest)
        yield from _section(heading, lines)
        for paragraph in after.strip().split("\n\n") if after else ():
            yield _prose(paragraph) + "\n"


def _section(heading: str, lines: list[str]) -> Iterator[str]:
    heading = {"Args": "Arguments"}.get(heading, heading)
    if heading in ("Returns", "Yields"):
        yield f"**{heading}:** {_prose(' '.join(lines))}\n"
        return
    raises = heading.startswith("Raises")
    items: list[str] = []
    for line in lines:
        begins = not line.startswith(" ") and (_ERRORS.match(line) if raises else True)
        if begins or not items:
            items.append(line.strip())
        else:
            items[-1] += " " + line.strip()
    if raises:
        text = "; ".join(item.rstrip(".;") for item in items)
        yield f"**{heading}:** {_prose(text)}.\n"
        return
    yield f"**{heading}:**\n"
    for item in items:
        names, _, text = item.partition(": ")
        name = names.replace(", ", "`, `")
        yield f"- `{name}`: {_prose(text)}" if text else f"- {_prose(item)}"
    yield ""


def _without_examples(document: str) -> str:
    """Doctests are left out: the page has examples of its own, which a test runs."""
    return re.sub(r"^ *>>> .*\n(?: *\S.*\n?)*", "", document, flags=re.MULTILINE)


def _prose(text: str) -> str:
    text = " ".join(text.split()).replace("``", "`")
    return re.sub(r"<(?=[A-Za-z])", "\\\\<", text)


def _joined(lines: Iterable[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip("\n")


def _code(text: str) -> str:
    return f"```py\n{text}\n```\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(reference(), "utf-8")
