"""Build a request from flags: `-X POST -H "Name: value" -d text`, JSON, or form fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ..errors import Misconfigured
from ..model.task import Request


def request_of(
    url: str,
    method: str | None,
    headers: Sequence[str] | None,
    data: str | None,
    json: str | None,
    form: Sequence[str] | None,
    auth: str | None = None,
    *,
    read: Callable[[str], str] = str,
) -> Request:
    """The request for `url`; with a body it is a POST unless `method` says otherwise. `read` is applied to every text
    that is sent. Raises Misconfigured."""
    named = dict(_pair(read(text), ":", "a header, 'Name: value'") for text in headers or ())
    try:
        body = msgspec.json.decode(read(json)) if json is not None else None
    except msgspec.DecodeError as error:
        raise Misconfigured(f"{json[:60]!a} is not JSON: {error}.") from error  # type: ignore[index]
    sends = data is not None or json is not None or bool(form)
    return Request(
        url=url,
        method=method or ("POST" if sends else "GET"),
        headers=named or None,
        body=read(data) if data is not None else None,
        json=body,
        form=[_pair(read(text), "=", "a field, name=value") for text in form or ()] or None,
        auth=_pair(auth, ":", "user:password") if auth is not None else None,
    )


def _pair(text: str, mark: str, what: str) -> tuple[str, str]:
    name, found, value = text.partition(mark)
    if not found or not name:
        raise Misconfigured(f"{text[:60]!a} is not {what}.")
    return name, value.lstrip() if mark == ":" else value
