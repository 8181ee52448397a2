"""What a request carries beyond its URL: parameters, headers, cookies, a body. Made from what a spider writes; a
request that cannot be sent raises `BadPayload`, whose words follow the URL in a message."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, TypeAlias
from urllib.parse import quote_plus

import msgspec

from .secret_text import IN_FORM, IN_JSON, Reveal, SecretRef, SecretText, Text, has_secret, parted, stored

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")  # repeating them changes nothing
BODILESS = ("GET", "HEAD")
MAX_QUEUED_BODY = 64 * 1024  # bytes; longer bodies are kept in the archive, not in the queue
MAX_BODY = 16 * 1024 * 1024
MAX_HEADERS = 32 * 1024  # characters of all headers and cookies of a request
LONGEST_TIMEOUT = 3600.0

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]*")
_COOKIE_VALUE = re.compile(r"[!#-+\--:<-\[\]-~]*|\"[!#-+\--:<-\[\]-~]*\"")
# They belong to the connection, or name its target.
OF_THE_CONNECTION = frozenset({
    "host", "connection", "keep-alive", "proxy-connection", "proxy-authorization", "te", "trailer",
    "transfer-encoding", "upgrade", "content-length", "expect",
})  # fmt: skip

Part: TypeAlias = bytes | SecretRef
Pairs: TypeAlias = tuple[tuple[str, Text], ...]


class BadPayload(ValueError):
    """The request cannot be sent. The words follow its URL in a message."""


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A body that is sent as it is, except for secrets. If it is kept in the archive, only `archived` is set."""

    parts: tuple[Part, ...] = ()
    archived: str = ""  # its digest
    ref: str = ""  # in the archive
    size: int = 0  # bytes, without the secrets

    @property
    def digest(self) -> str:
        """Equal for equal bodies."""
        return self.archived or sha256(msgspec.json.encode(self.parts)).hexdigest()

    def content(self, reveal: Reveal) -> bytes:
        """The bytes as they are sent. Raises Misconfigured."""
        return b"".join(part if isinstance(part, bytes) else part.reveal(reveal).encode() for part in self.parts)


def method_of(text: str) -> str:
    method = text.upper() if isinstance(text, str) else ""
    if not _TOKEN.fullmatch(method) or method in ("CONNECT", "TRACE"):
        raise BadPayload(f"has the method {text!a:.30}, which cannot be used")
    return sys.intern(method)  # msgspec knows a default by its identity


def headers_of(headers: Mapping[str, str]) -> Pairs:
    """Headers as they are stored. Of names that differ in case only, the last wins."""
    if not isinstance(headers, Mapping):
        raise BadPayload(f"has headers that are not a dict, but {type(headers).__name__}")
    pairs: dict[str, tuple[str, Text]] = {}
    for name, value in headers.items():
        check_header(name, value)
        if name.lower() == "cookie":
            raise BadPayload("has the header Cookie; write cookies={...} instead")
        pairs[name.lower()] = (name, stored(value))
    return tuple(pairs.values())


def check_header(name: Any, value: Any) -> None:
    """Raise BadPayload for a header that a user's request cannot carry."""
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise BadPayload(f"has the header {name!a:.60}, which is not a valid header name")
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise BadPayload(f"has a header {name} that is not a single line of text")
    if name.lower() in OF_THE_CONNECTION:
        raise BadPayload(f"has the header {name}, which belongs to the connection and cannot be set")


def cookies_of(cookies: Mapping[str, str]) -> Pairs:
    if not isinstance(cookies, Mapping):
        raise BadPayload(f"has cookies that are not a dict, but {type(cookies).__name__}")
    pairs = []
    for name, value in cookies.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise BadPayload(f"has the cookie {name!a:.60}, which is not a valid cookie name")
        if not isinstance(value, str) or not (has_secret(value) or _COOKIE_VALUE.fullmatch(value)):
            raise BadPayload(f"has a cookie {name} with a value that is not allowed in cookies")
        pairs.append((name, stored(value)))
    return tuple(pairs)


def auth_of(auth: tuple[str, str]) -> tuple[Text, Text]:
    if not isinstance(auth, tuple | list) or len(auth) != 2 or not all(isinstance(text, str) for text in auth):
        raise BadPayload("has an auth that is not (user, password)")
    user, password = auth
    if ":" in user or not _VALUE.fullmatch(user + password):
        raise BadPayload("has an auth with characters that are not allowed in credentials")
    return stored(user), stored(password)


def with_params(url: str, params: Any) -> str:
    """The address with these parameters added to its query."""
    if any(has_secret(value) for _, value in _pairs_of(params, "params")):
        raise BadPayload("has a secret among its params; addresses are logged: send it as a header or in the body")
    query = _urlencoded(params, "params")
    head, mark, fragment = url.partition("#")
    joint = "" if head.endswith(("?", "&")) else "&" if "?" in head else "?"
    text = b"".join(part for part in query if isinstance(part, bytes)).decode()
    return f"{head}{joint}{text}{mark}{fragment}" if text else url


def body_of(*, form: Any, json: Any, body: Any, files: Any) -> tuple[str, Body] | None:
    """The body and its content type ("" if unknown); None for a request without a body."""
    if sum(one is not None for one in (form, json, body)) > 1 or (files is not None and (json, body) != (None, None)):
        raise BadPayload("has more than one body; give it form, json or body (files go with form)")
    made: Iterable[Part]
    if files is not None:
        content_type, made = _multipart(form, files)
    elif form is not None:
        content_type, made = "application/x-www-form-urlencoded", _urlencoded(form, "form")
    elif json is not None:
        content_type, made = "application/json", _json(json)
    elif isinstance(body, Body):
        content_type, made = "", body.parts
    elif body is not None:
        if not isinstance(body, bytes | str):
            raise BadPayload(f"has a body that is neither bytes nor text, but {type(body).__name__}")
        content_type, made = "", (body,) if isinstance(body, bytes) else _encoded(parted(body))
    else:
        return None
    parts = _joined(made)
    size = sum(len(part) for part in parts if isinstance(part, bytes))
    if size > MAX_BODY:
        raise BadPayload(f"has a body of {size:,} bytes; {MAX_BODY:,} are allowed")
    return content_type, Body(parts=parts, size=size)


def _encoded(parts: Iterable[str | SecretRef]) -> Iterable[Part]:
    for part in parts:
        yield part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part


def _joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Join neighbouring bytes into one part: equal bodies have equal parts."""
    joined: list[Part] = []
    run: list[bytes] = []
    for part in parts:
        if isinstance(part, bytes):
            run.append(part)
            continue
        if run:
            joined.append(b"".join(run))
            run = []
        joined.append(part)
    if any(run):
        joined.append(b"".join(run))
    return tuple(joined)


def _pairs_of(fields: Any, what: str) -> Iterable[tuple[str, str]]:
    """The fields of a form or a query, one by one: a dict, whose values may be lists, or pairs."""
    if isinstance(fields, Mapping):
        fields = [
            (name, one)
            for name, value in fields.items()
            for one in (value if isinstance(value, list | tuple) else [value])
        ]
    if not isinstance(fields, list | tuple):
        raise BadPayload(f"has {what} that are neither a dict nor a list of pairs, but {type(fields).__name__}")
    for pair in fields:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise BadPayload(f"has {what} that are neither a dict nor a list of pairs of name and value")
        name, value = pair
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise BadPayload(f"has {name!a:.60} in its {what}, whose value is neither text nor number: {value!r:.60}")
        yield name, value if isinstance(value, str) else str(value)


def _urlencoded(fields: Any, what: str) -> list[Part]:
    made: list[Part] = []
    for name, value in _pairs_of(fields, what):
        made.append(f"{'&' if made else ''}{quote_plus(name, errors='replace')}=".encode())
        for part in parted(value, IN_FORM):
            made.append(quote_plus(part, errors="replace").encode() if isinstance(part, str) else part)
    return made


def _json(value: Any) -> Iterable[Part]:
    try:
        text = msgspec.json.encode(value, enc_hook=_plain).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadPayload(f"has json that cannot be written ({error})") from error
    return _encoded(parted(text, IN_JSON))


def _plain(value: Any) -> str:
    if isinstance(value, SecretText):
        return str.__str__(value)
    raise TypeError(f"JSON cannot represent {type(value).__name__}")


def _multipart(form: Any, files: Any) -> tuple[str, list[Part]]:
    """The form as browsers write it. The boundary follows from the content, so that equal forms are equal."""
    if not isinstance(files, Mapping):
        raise BadPayload(f"has files that are not a dict, but {type(files).__name__}")
    sections: list[list[Part]] = []
    for name, value in _pairs_of(form if form is not None else (), "form"):
        sections.append([f'Content-Disposition: form-data; name="{quotable(name)}"\r\n\r\n'.encode()])
        sections[-1] += _encoded(parted(value))
    for name, given in files.items():
        filename, content, kind = _file(name, given)
        head = f'Content-Disposition: form-data; name="{quotable(name)}"; filename="{quotable(filename)}"\r\n'
        sections.append([f"{head}Content-Type: {kind}\r\n\r\n".encode(), content])
    boundary = f"gossamer-{sha256(msgspec.json.encode(sections)).hexdigest()[:32]}"
    return f"multipart/form-data; boundary={boundary}", with_boundary(sections, boundary)


def with_boundary(sections: Iterable[Iterable[Part]], boundary: str) -> list[Part]:
    """The sections of a multipart body, one after the other."""
    made: list[Part] = []
    for section in sections:
        made += [f"--{boundary}\r\n".encode(), *section, b"\r\n"]
    return [*made, f"--{boundary}--\r\n".encode()]


def _file(name: Any, given: Any) -> tuple[str, bytes, str]:
    """`files` holds bytes, or (file name, bytes), or (file name, bytes, content type)."""
    values = given if isinstance(given, tuple | list) else (name, given)
    filename, content, kind = (*values, "application/octet-stream")[:3] if 2 <= len(values) <= 3 else (None, None, None)
    if not isinstance(name, str) or not isinstance(filename, str) or not isinstance(content, bytes | str):
        raise BadPayload(f"has a file {name!a:.60} that is neither bytes nor (file name, bytes, content type)")
    if not isinstance(kind, str) or not kind or not _VALUE.fullmatch(kind):
        raise BadPayload(f"has a file {name!a:.60} whose content type is not a single line of text")
    return filename, content.encode() if isinstance(content, str) else content, kind


def quotable(name: str) -> str:
    """A name between the quotation marks of a header of a multipart body."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
