"""The OpenAPI document, made from the endpoints and the types of their bodies and answers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from .. import __version__
from .answers import ErrorAnswer
from .endpoint import ANY, PUBLIC, Endpoint

REF = "#/components/schemas/{name}"
STATUSES = {
    400: "The request is malformed",
    401: "No key, or an invalid one",
    403: "The key lacks the scope",
    404: "It does not exist, or belongs to another key",
    409: "It is not possible now, or the Idempotency-Key was used for another request",
    413: "The body is too large",
    415: "The body is not JSON",
    421: "The Host header names another server",
    422: "The request is well formed but not valid",
    429: "Too many requests or jobs; see Retry-After",
    503: "A store or all workers are unavailable; see Retry-After",
}


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The whole document, as plain dicts and lists."""
    found = list(endpoints)
    kinds = [kind for one in found for kind in (one.gives, one.body, one.query) if kind is not None]
    schemas, components = msgspec.json.schema_components([*kinds, ErrorAnswer], ref_template=REF)
    schema_of = {_identity(kind): schema for kind, schema in zip([*kinds, ErrorAnswer], schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for one in found:
        for path in (one.path, *one.aliases):
            paths.setdefault(path, {})[one.method.lower()] = _operation(one, path, schema_of, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Gossamer",
            "version": __version__,
            "description": "Submit pages, follow jobs, read records. Every error has the shape of ErrorAnswer.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _operation(one: Endpoint, path: str, schema_of: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    error = {"content": {"application/json": {"schema": schema_of[_identity(ErrorAnswer)]}}}
    content: dict[str, Any] = {} if one.gives is None else {"schema": schema_of[_identity(one.gives)]}
    media = {one.media: content, **{name: {} for name in one.other_media}}
    operation: dict[str, Any] = {
        "summary": one.summary,
        "operationId": _operation_id(one, path),
        "deprecated": False,
        "parameters": [*_path_parameters(path), *_query_parameters(one, schema_of, components), *_headers(one)],
        "responses": {
            "2XX": {"description": one.summary, "content": media},
            **{str(status): {"description": words, **error} for status, words in _statuses(one).items()},
        },
    }
    if one.scope == PUBLIC:
        operation["security"] = []
    else:
        operation["security"] = [{"key": []}, {"bearer": []}]
        needed = "any key" if one.scope == ANY else " or ".join(scope for scope in (one.scope, one.or_scope) if scope)
        operation["description"] = f"Scope: {needed}."
    if one.body is not None:
        body: dict[str, Any] = {"schema": schema_of[_identity(one.body)]}
        if one.example is not None:
            body["example"] = one.example
        operation["requestBody"] = {"required": not one.body_optional, "content": {"application/json": body}}
    return operation


def _statuses(one: Endpoint) -> dict[int, str]:
    fitting = STATUSES if one.scope != PUBLIC else {status: STATUSES[status] for status in (421, 422, 503)}
    return {**fitting, **{status: words for status, words in one.other_statuses.items() if status >= 300}}


def _operation_id(one: Endpoint, path: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", f"{one.method} {path.removeprefix('/api/v1')}".lower()).strip("_")


def _path_parameters(path: str) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(one: Endpoint, schema_of: dict[str, Any], components: dict[str, Any]) -> list[dict[str, Any]]:
    schema = schema_of[_identity(one.query)]
    schema = components[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    needed = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in needed, "schema": _in_address(kind)}
        for name, kind in schema.get("properties", {}).items()
    ]


def _in_address(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a query parameter, which may be absent but never null."""
    kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    if len(kinds) != 1:
        return {**schema, "anyOf": kinds} if kinds else schema
    return {**{name: value for name, value in schema.items() if name not in ("anyOf", "default")}, **kinds[0]}


def _headers(one: Endpoint) -> list[dict[str, Any]]:
    if one.method != "POST":
        return []
    words = "The same key and body get the same answer for 24 hours."
    schema = {"type": "string", "maxLength": 255}
    return [{"name": "Idempotency-Key", "in": "header", "required": False, "description": words, "schema": schema}]


def _identity(kind: Any) -> str:
    """A key for a type: types such as list[X] are equal without being identical."""
    return repr(kind)
