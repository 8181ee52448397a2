"""Requests from a browser and the responses to it: filters in the query, fields of a form and the check that one of our
pages sent it, the headers of every response, their compression, and the message that the next page shows.

How it fails: ApiError, shown as a page that names the next step.
"""

from __future__ import annotations

import base64
import gzip
import secrets
import zlib
from collections.abc import AsyncIterator, Mapping
from hmac import compare_digest
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ...project.access.sign_in import Visitor
from ...settings import Settings
from ..answers import ApiError
from ..request_body import invalid, read_body
from .view import NoFilters

SAID = "gossamer_said"
SAID_SECONDS = 20
MOST_FIELDS = 200  # of one form
LEVEL = 6  # of compression
WORTH_IT = 1000  # bytes; a smaller response is sent as it is
NEVER = ("q=0", "q=0.0", "q=0.00", "q=0.000")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    # Other sites never see our addresses. With no-referrer browsers would send `Origin: null` with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def filters_of(request: Request, kind: type[msgspec.Struct]) -> Any:  # Any: a struct of that kind
    """The filters in the query. Empty and unknown fields are ignored."""
    known = kind.__struct_fields__
    return read_into(kind, {name: value for name, value in request.query_params.items() if value and name in known})


def read_into(kind: type[msgspec.Struct], fields: Mapping[str, object]) -> Any:  # Any: a struct of that kind
    if kind is NoFilters:
        return NoFilters()
    try:
        return msgspec.convert(fields, kind, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise invalid(error) from None


def check_same_site(request: Request) -> None:
    """Raises ApiError unless the request comes from one of our own pages."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin", "")
    if site is not None:
        ours = site == "same-origin"
    elif request.method == "GET" and not origin:
        ours = True  # over plain HTTP browsers send neither with a GET, which changes nothing; SameSite applies
    else:
        ours = bool(origin) and urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
    if not ours:
        raise ApiError(403, "origin", "This was sent by a page of another site, and nothing was done.")


async def form_of(request: Request, settings: Settings, visitor: Visitor | None = None) -> dict[str, str]:
    """The fields of a submitted form, each at most once. A signed-in user must send their form token along."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise ApiError(415, "not_a_form", "Send a form.")
    content = await read_body(request, settings.server.max_body.bytes)
    try:
        pairs = parse_qsl(content.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError:
        raise ApiError(400, "form", "This form is malformed.") from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ApiError(422, "invalid", "A field of the form was sent twice.")
    if visitor is not None and not compare_digest(unmasked(fields.pop("csrf", "")).encode(), visitor.csrf.encode()):
        raise ApiError(403, "form", "This form is from another sign-in. Go back, reload the page, and try again.")
    return fields


def masked(token: str) -> str:
    """A form token as pages carry it: different each time. Pages are compressed, and the length of a compressed page
    with the token itself in it would tell, guess by guess, what it is (BREACH)."""
    mask = secrets.token_bytes(len(token))
    return (mask + bytes(one ^ other for one, other in zip(mask, token.encode(), strict=True))).hex()


def unmasked(text: str) -> str:
    """The token that was masked; "" if the text is no masked token."""
    try:
        pair = bytes.fromhex(text)
        mask, hidden = pair[: len(pair) // 2], pair[len(pair) // 2 :]
        return bytes(one ^ other for one, other in zip(mask, hidden, strict=True)).decode()
    except ValueError:
        return ""


# -- compression -----------------------------------------------------------------------------------------------------


def takes_gzip(request: Request) -> bool:
    """Does the browser take gzip? All do."""
    coded = (part.partition(";") for part in request.headers.get("accept-encoding", "").lower().split(","))
    return any(name.strip() == "gzip" and terms.replace(" ", "") not in NEVER for name, _, terms in coded)


def compressed(request: Request, response: Response) -> Response:
    """The response, compressed if the browser takes that and it is worth it. Never for a page that shows a secret."""
    body = bytes(response.body)
    response.headers["vary"] = "accept-encoding"
    if len(body) < WORTH_IT or not takes_gzip(request):
        return response
    response.body = gzip.compress(body, LEVEL, mtime=0)
    response.headers["content-encoding"] = "gzip"
    response.headers["content-length"] = str(len(response.body))
    return response


async def compressed_events(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A stream of events as one gzip stream, each event sent at once. A refreshed part of a page is much like the one
    before it, which the browser still has: it takes few bytes."""
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    async for event in events:
        yield packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()


# -- answers ---------------------------------------------------------------------------------------------------------


def redirect(address: str) -> Response:
    return RedirectResponse(address, 303, HEADERS)


def is_https(request: Request, settings: Settings) -> bool:
    return request.url.scheme == "https" or settings.server.public_url.startswith("https://")


def said(request: Request, settings: Settings, response: Response, words: str) -> Response:
    """Set the message that the next page shows. It travels in a cookie, so that no link can put words on a page."""
    response.set_cookie(
        SAID,
        base64.urlsafe_b64encode(words[:500].encode()).decode(),
        max_age=SAID_SECONDS,
        path="/",
        httponly=True,
        samesite="strict",
        secure=is_https(request, settings),
    )
    return response


def words_said(request: Request) -> str:
    """The message that the previous page left, usually none."""
    try:
        return base64.urlsafe_b64decode(request.cookies.get(SAID, "").encode()).decode()
    except ValueError:
        return ""
