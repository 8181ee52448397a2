"""Requests from a browser and the responses to it: filters in the query, fields of a form and the check that one of our
pages sent it, the headers of every response, and the message that the next page shows.

How it fails: ApiError, shown as a page that names the next step.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
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
    return read_into(kind, {name: value for name, value in request.query_params.items() if value})


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
    if visitor is not None and not compare_digest(fields.pop("csrf", "").encode(), visitor.csrf.encode()):
        raise ApiError(403, "form", "This form is from another sign-in. Go back, reload the page, and try again.")
    return fields


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
