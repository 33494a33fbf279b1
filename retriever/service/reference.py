"""The page at /docs: every route of the OpenAPI description, without a script."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape
from typing import Any


def reference_page(description: dict[str, Any], address: str) -> str:
    """The routes of an OpenAPI description as HTML, with examples that call an address."""
    schemas = description.get("components", {}).get("schemas", {})
    title = escape(f"{description['info']['title']} {description['info']['version']}")
    routes = [
        _route(method, address.rstrip("/") + path, path, operation, schemas)
        for path, operations in description["paths"].items()
        for method, operation in operations.items()
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{title}</title><link rel="stylesheet" href="/page.css"></head>'
        f'<body class="reference"><main><h1>{title}</h1>'
        f"<p>{escape(description['info']['description'])} "
        '<a href="/openapi.json">OpenAPI description</a> · <a href="/">Search page</a></p>'
        f"{''.join(routes)}</main></body></html>"
    )


def _route(
    method: str, url: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]
) -> str:
    fields = list(_parameters(operation))
    example = ""
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = _resolved(content.get("schema", {}), schemas)
        required = schema.get("required", [])
        fields += [
            (name, name in required, one) for name, one in schema.get("properties", {}).items()
        ]
        body = content.get("example") or json.dumps(
            {
                name: one["examples"][0]
                for name, one in schema["properties"].items()
                if name in ("query", "text", "title", "input", "documents", "k")
                and one.get("examples")
            }
            if "properties" in schema
            else {}
        )
        example = (
            f"curl -X {method.upper()} '{url}' -H 'Content-Type: {kind}' --data-binary '{body}'"
        )
    rows = "".join(
        f"<tr><th scope=row><code>{escape(name)}</code></th><td>{_kind(one, schemas)}"
        f"{', required' if required else ''}</td><td>{_prose(one.get('description', ''))}</td></tr>"
        for name, required, one in fields
    )
    table = f"<table><tbody>{rows}</tbody></table>" if rows else ""
    shown = f'<pre tabindex="0">{escape(example)}</pre>' if example else ""
    return (
        f"<section><h2><code>{method.upper()} {escape(path)}</code></h2>"
        f"<p><strong>{escape(operation.get('summary', ''))}.</strong> "
        f"{_prose(operation.get('description', ''))}</p>{table}{shown}</section>"
    )


def _prose(text: str) -> str:
    """Text whose names are in backquotes."""
    return re.sub(r"`(.+?)`", r"<code>\1</code>", escape(text))


def _parameters(operation: dict[str, Any]) -> Iterator[tuple[str, bool, dict[str, Any]]]:
    for one in operation.get("parameters", []):
        described = {**one["schema"], "description": one.get("description", "")}
        yield one["name"], one.get("required", False), described


def _resolved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = schemas.get(name, schema)
    return found


def _kind(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    """The type of a value, with the values that it can have."""
    parts = [_kind(one, schemas) for one in schema.get("anyOf", []) if one.get("type") != "null"]
    if parts:
        return " or ".join(parts)
    schema = _resolved(schema, schemas)
    if "enum" in schema:
        return escape(", ".join(map(str, schema["enum"])))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}), schemas)}"
    return escape(str(schema.get("type", "")))
