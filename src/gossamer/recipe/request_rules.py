"""Reads and fills in what a recipe sends besides the address: method, headers, and a form, JSON or a body.

In the texts of a request `{name}` is a value of `data`: the page's own data, or data that the rule extracts from it. A
text that is only `{name}` becomes that value, so it can be a number in JSON. `${NAME}` is a secret, as in settings. How
it fails: an invalid request is a fault of the recipe, with its line. A rule whose value is not on the page makes no
request: this is how pagination by cursor ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..model.secret_text import secrets_marked
from ..model.task import Request, fault_of
from .model import RecipeRequest
from .table import RecipeTable

REQUEST_KEYS = ("method", "headers", "form", "json", "body", "retry_unsafe")
_NOWHERE = "https://recipe.invalid/"
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,59})\}")


def read_request(table: RecipeTable) -> RecipeRequest | None:
    """The request in a table with REQUEST_KEYS; None if it has none of these keys. With a body the method is POST."""
    given = {key: table.values[key] for key in REQUEST_KEYS if key in table}
    if not given:
        return None
    if "method" not in given and given.keys() & {"form", "json", "body"}:
        given["method"] = "POST"
    fault = fault_of(Request(url=_NOWHERE, **given))
    if fault:
        table.fault(f"{table.spelled()} {fault}.", *list(given)[:1])
        return None
    return RecipeRequest(**given)


def read_headers(table: RecipeTable) -> dict[str, str]:
    """The headers of every request."""
    fault = fault_of(Request(url=_NOWHERE, headers=table.values)) if table.values else ""
    if fault:
        table.fault(f"{table.spelled()}: a request {fault}.", *list(table.values)[:1])
        return {}
    return {name: secrets_marked(value) for name, value in table.values.items()}


def has_place(how: RecipeRequest, name: str) -> bool:
    """Does it have a placeholder for the value `name`?"""
    return f"{{{name}}}" in msgspec.json.encode(how).decode()


def asked_with(request: Request, how: RecipeRequest | None, values: Mapping[str, Any]) -> Request | None:
    """The request with its placeholders filled in; None if one of the values is missing."""
    if how is None:
        return request
    try:
        fields = _filled(msgspec.structs.asdict(how), values)
    except _Missing:
        return None
    if fields["headers"] is not None:
        fields["headers"] = {name: str(value) for name, value in fields["headers"].items()}
    return msgspec.structs.replace(request, **fields)


class _Missing(Exception):
    """The value of a placeholder is missing."""


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return _filled_text(value, values)
    if isinstance(value, Mapping):
        return {name: _filled(one, values) for name, one in value.items()}
    if isinstance(value, Sequence):
        return [_filled(one, values) for one in value]
    return value


def _filled_text(text: str, values: Mapping[str, Any]) -> Any:
    whole = _PLACE.fullmatch(text)
    if whole is not None and whole[1] in values:
        return _value(values, whole[1])

    def put(found: re.Match[str]) -> str:
        return str(_value(values, found[1])) if found[1] in values else found[0]  # GraphQL is full of braces

    # Secrets first: text from a page must not be able to name one.
    return _PLACE.sub(put, secrets_marked(text))


def _value(values: Mapping[str, Any], name: str) -> Any:
    value = values[name]
    if value is None:
        raise _Missing
    return value
