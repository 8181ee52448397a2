"""The endpoints of operations (project/operation.py)."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ..project.operation import Operation
from .endpoint import Call, Endpoint, NoQuery, Reply


def endpoint_of(operation: Operation[Any, Any]) -> Endpoint:  # Any: each has its own types
    """What is not in the path comes as the query of a GET or DELETE, or as the JSON body."""
    in_path = set(re.findall(r"{(\w+)}", operation.path))
    rest = [field for field in msgspec.structs.fields(operation.ask) if field.name not in in_path]
    shape = _shape(operation.ask, rest) if in_path else operation.ask

    async def handle(call: Call) -> Reply:
        sent = {name: getattr(call.of(shape), name) for name in shape.__struct_fields__} if rest else {}
        ask = msgspec.convert({**sent, **{name: call.path[name] for name in in_path}}, operation.ask)
        value = await operation.run(call.project, call.caller, ask)
        target = str(getattr(value, "id", "")) if operation.writes else ""
        return Reply(value=value, status=201 if operation.method == "POST" else 200, target=target)

    has_body = operation.method in ("POST", "PUT") and bool(rest)
    return Endpoint(
        method=operation.method,
        path=operation.path,
        scope=operation.scope,
        summary=operation.summary,
        handler=handle,
        gives=operation.gives,
        example=operation.example,
        body=shape if has_body else None,
        query=shape if rest and not has_body else NoQuery,
    )


def _shape(ask: type[msgspec.Struct], fields: list[msgspec.structs.FieldInfo]) -> type[msgspec.Struct]:
    """The struct without the fields of the path."""
    given = [
        (field.name, field.type) if field.required else (field.name, field.type, field.default) for field in fields
    ]
    return msgspec.defstruct(ask.__name__, given, frozen=True, kw_only=True, forbid_unknown_fields=True)
