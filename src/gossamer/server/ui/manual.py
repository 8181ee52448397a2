"""The page of the API (`/docs`), made from the OpenAPI document, for readers without another tool."""

from __future__ import annotations

import json
from typing import Any

import msgspec

GROUPS = {"scrape": "Scrape", "batch": "Scrape", "crawl": "Scrape"}  # where the first part of a path is not its group
DEEPEST = 3  # levels of a schema that are written out


class ManualField(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    needed: bool
    words: str


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint, as the page shows it."""

    id: str
    method: str
    path: str
    summary: str
    scope: str
    parameters: list[ManualField]
    body: list[ManualField]
    answer: list[ManualField]
    example: str


class Manual(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    groups: dict[str, list[Entry]]


def manual_of(document: dict[str, Any]) -> Manual:
    schemas = document["components"]["schemas"]
    groups: dict[str, list[Entry]] = {}
    for path, methods in sorted(document["paths"].items()):
        for method, operation in methods.items():
            groups.setdefault(_group(path), []).append(_entry(path, method, operation, schemas))
    return Manual(version=document["info"]["version"], groups=dict(sorted(groups.items())))


def _group(path: str) -> str:
    first = path.removeprefix("/api/v1").strip("/").partition("/")[0]
    return GROUPS.get(first, first.replace("-", " ").capitalize() or "Others") if "/api/v1" in path else "Others"


def _entry(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> Entry:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    answer = operation["responses"].get("2XX", {}).get("content", {}).get("application/json", {})
    parameters = [
        ManualField(
            name=one["name"], kind=kind_of(one["schema"], schemas), needed=bool(one.get("required")),
            words=_words(one["schema"]) or _words(one),
        )
        for one in operation.get("parameters", [])
    ]  # fmt: skip
    return Entry(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=operation["summary"],
        scope=operation.get("description", "No key is needed."),
        parameters=parameters,
        body=_fields(body.get("schema", {}), schemas),
        answer=_fields(answer.get("schema", {}), schemas),
        example=json.dumps(body["example"], indent=2, ensure_ascii=False) if "example" in body else "",
    )


def _fields(schema: dict[str, Any], schemas: dict[str, Any]) -> list[ManualField]:
    """The fields of an object, or of the objects in a list."""
    schema = _resolved(schema, schemas)
    if schema.get("type") == "array":
        items = schema.get("items")
        schema = _resolved(items, schemas) if isinstance(items, dict) else {}
    needed = schema.get("required", [])
    return [
        ManualField(name=name, kind=kind_of(one, schemas), needed=name in needed, words=_words(one))
        for name, one in schema.get("properties", {}).items()
    ]


def _words(schema: Any) -> str:  # Any: as above
    return str(schema.get("description", "")) if isinstance(schema, dict) else ""


def _resolved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def kind_of(schema: Any, schemas: dict[str, Any], depth: int = 0) -> str:  # Any: a schema, or True for any value
    """A type in words: `text`, `list of Reason`, `one of css, xpath`."""
    if not isinstance(schema, dict):
        return "anything"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        known = schemas.get(name, {})
        return kind_of(known, schemas, depth + 1) if "enum" in known and depth < DEEPEST else str(name)
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    if "anyOf" in schema:
        kinds = [kind_of(one, schemas, depth + 1) for one in schema["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds)) + ("" if len(kinds) == len(schema["anyOf"]) else ", or null")
    if schema.get("type") == "array":
        return f"list of {kind_of(schema.get('items', {}), schemas, depth + 1)}" if depth < DEEPEST else "list"
    names = {"string": "text", "integer": "number", "number": "number", "boolean": "true or false", "object": "object"}
    bounds = [f"{words} {schema[key]:,}" for key, words in _BOUNDS.items() if isinstance(schema.get(key), int)]
    return ", ".join([names.get(str(schema.get("type")), "anything"), *bounds])


_BOUNDS = {"minimum": "at least", "maximum": "at most", "maxLength": "length at most", "maxItems": "items at most"}
