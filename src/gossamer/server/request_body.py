"""Bodies and parameters of requests: bounded in size, time and depth, and parsed strictly.

How it fails: ApiError with 400, 408, 413, 415 or 422, before anything was done.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from ..model.item import safe_text
from .answers import ApiError

MOST_DEPTH = 20
BODY_SECONDS = 30.0
# An unterminated string matches up to the end of the body, so that it is not scanned again from each later quote.
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_OPENING = (b"[", b"{")


async def read_body(request: Request, most: int) -> bytes:
    """The whole body, at most `most` bytes of it and within BODY_SECONDS."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > most:
        raise _too_large(most)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise _too_large(most)
                parts.append(part)
    except TimeoutError:
        raise ApiError(408, "slow_body", f"The body did not come within {BODY_SECONDS:g} s. Send it at once.") from None
    except ClientDisconnect:
        raise ApiError(400, "cut_body", "The connection ended before the body did.") from None
    return b"".join(parts)


def _too_large(most: int) -> ApiError:
    return ApiError(413, "too_large", f"A body may have {most:,} bytes. Send less at once.")


def parse_body(content: bytes, kind: type[msgspec.Struct], content_type: str) -> Any:
    """A struct of that type from JSON. The form content type of `curl -d` is accepted, because its body is JSON."""
    if content_type.partition(";")[0].strip().lower() not in (
        "",
        "application/json",
        "application/x-www-form-urlencoded",
    ):
        raise ApiError(415, "not_json", "Send JSON: content-type: application/json.")
    if _depth(content) > MOST_DEPTH:
        raise ApiError(422, "too_deep", f"The JSON is nested deeper than {MOST_DEPTH} levels.")
    try:
        found = msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise invalid(error) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError) as error:
        raise ApiError(400, "bad_json", f"The body is not JSON: {_plain(error)}.") from None
    _check_texts(found)
    return found


def parse_query(request: Request, kind: type[msgspec.Struct]) -> Any:
    """A struct of that type from the query parameters; each may be given once."""
    values: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in values:
            raise ApiError(422, "invalid", f"The parameter {name[:50]!r} is given twice.")
        values[name] = value
    try:
        found = msgspec.convert(values, kind, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise invalid(error) from None
    _check_texts(found)
    return found


def invalid(error: msgspec.ValidationError) -> ApiError:
    what, _, where = str(error).partition(" - at ")
    place = where.strip("`").removeprefix("$").removeprefix(".")
    return ApiError(422, "invalid", f"{what}{f' in {place}' if place else ''}.", details={"field": place})


def _depth(content: bytes) -> int:
    """How deep the JSON is nested; brackets inside strings do not count."""
    depth = deepest = 0
    for token in _TOKENS.finditer(content):
        sign = token[0]
        if sign in _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif sign in (b"]", b"}"):
            depth -= 1
    return deepest


def _check_texts(value: object) -> None:
    """Raises ApiError for a string that cannot be stored: with a lone surrogate or a zero byte."""
    match value:
        case str():
            if safe_text(value) != value:
                raise ApiError(422, "invalid", "A text holds characters that cannot be stored.")
        case msgspec.Struct():
            for name in value.__struct_fields__:
                _check_texts(getattr(value, name))
        case dict():
            for key, held in value.items():
                _check_texts(key)
                _check_texts(held)
        case list() | tuple():
            for held in value:
                _check_texts(held)


def _plain(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".")
