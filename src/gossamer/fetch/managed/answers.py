"""Reads a vendor's response: the page, or whose fault it is that there is none. JSON is decoded without blocking the
event loop."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import math
import re
from datetime import timedelta
from typing import Any

import msgspec

from ...errors import ApiFailed, BadResponse, FetchFailed, InvalidUrl
from ...model.page import Headers
from ...model.url import origin_of, parse_url, without_user
from ..contract import Response, TransportRequest
from ..retry_after import parse_retry_after
from .vendor import BODY, HEADER, HEADERS, JSON, STATUS, Vendor, Where

Tree = Any  # any JSON value

# A name and a value as HTTP has them: a token, and a line without control characters or halves of characters.
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\n[^\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]*")

_LONG = 1024 * 1024  # bytes; a longer response is decoded in parts, and is not an error message


def read(body: bytes) -> Tree:
    """Decode JSON. Raises ValueError for anything else."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        # Truncated JSON fails in every decoder; but half a surrogate pair near the end gives the same error.
        if "truncated" in str(error) and b"\\ud" not in body and b"\\uD" not in body:
            raise ValueError("it is not JSON") from None
    try:
        return json.loads(body)  # more lenient: pages that were decoded wrongly contain lone surrogates
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None


async def read_in_parts(body: bytes, path: tuple[str, ...]) -> Tree:
    """As `read`; in a long text the members of the list at `path` are decoded one by one, and other tasks run in
    between.

    A thread would not help: the decoder holds the GIL for the whole call.
    """
    if len(body) <= _LONG or not path:
        return read(body)
    levels: list[dict[str, msgspec.Raw]] = []
    rest: bytes | msgspec.Raw = body
    try:
        for step in path:
            levels.append(msgspec.json.decode(rest, type=dict[str, msgspec.Raw]))
            rest = levels[-1].pop(step)
            await asyncio.sleep(0)
        members = msgspec.json.decode(rest, type=list[msgspec.Raw])
        found: Tree = []
        often = 1 + len(members) // 1000
        for index, member in enumerate(members):
            found.append(msgspec.json.decode(member))
            if index % often == 0:
                await asyncio.sleep(0)
        for step, level in zip(reversed(path), reversed(levels), strict=True):
            found = {name: msgspec.json.decode(value) for name, value in level.items()} | {step: found}
    except (msgspec.DecodeError, UnicodeError, RecursionError, KeyError):
        return read(body)  # another shape, or one for the lenient decoder
    return found


def at(path: tuple[str, ...], tree: Tree) -> Tree:
    """The value at that path, or None."""
    found = tree
    for step in path:
        if isinstance(found, dict):
            found = found.get(step)
        elif isinstance(found, list) and step.isascii() and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found


KEY_WAIT = timedelta(minutes=10)  # a person has to fix something
BUSY_WAIT = timedelta(seconds=30)
DOWN_WAIT = timedelta(seconds=15)
ODD_WAIT = timedelta(minutes=1)  # garbage, or a job that never ends: each attempt may cost money
LONGEST_WAIT = timedelta(days=1)

MOST_COST = 1e9  # credits for one page; beyond that, sums of what vendors say could leave the range of numbers
MOST_HEADERS = 64 * 1024  # characters of the headers of a page in JSON; those on the wire are bounded by the client

_ACCOUNT = frozenset({401, 402, 403, 407, 429})
_REFUSED_PAGE = frozenset({400, 413, 414, 422})
_WORDS = 200  # characters of the vendor's message that are quoted
_LISTENED_TO = 64 * 1024  # characters of a response in which the message is looked for

# These belong to the connection, or to a body that is already decoded. Cookies stay with the vendor, which was the
# visitor.
_NOT_THE_PAGES = frozenset(
    {
        "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
        "content-encoding", "content-length", "set-cookie", "set-cookie2", "alt-svc", "strict-transport-security",
    }
)  # fmt: skip


class VendorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One response of the API. `cut`: it was longer than the limit, and its end is missing."""

    status: int
    headers: Headers
    body: bytes
    cut: bool = False
    wire: int = 0
    note: str = ""


def failure_of(vendor: Vendor, answer: VendorAnswer, now: float) -> FetchFailed | None:
    """The failure that the status reports; None for a response of the target, or a successful one of the API."""
    status, table = answer.status, vendor.table
    by_json = vendor.status is None or vendor.status.kind == JSON
    if status in (table.failed_statuses or (_REFUSED_PAGE if by_json else ())):
        return FetchFailed(_said(vendor, answer, f"the vendor could not get the page ({status})"))
    if 300 <= status < 400 and status != 304 and _is_own_redirect(vendor, answer, by_json):
        return ApiFailed(
            f"{_who(vendor)} redirects us ({status}), which is not followed. Check {vendor.setting('url')}.",
            wait=KEY_WAIT,
            status=status,
        )
    if not _is_vendors(vendor, answer, by_json):
        return None
    asked = parse_retry_after(answer.headers.get("retry-after"), now)
    if status in (401, 403, 407):
        words = f"the API refuses the key. Check {vendor.setting('key')} ({status})"
        return ApiFailed(_said(vendor, answer, words), wait=KEY_WAIT, status=status)
    if status == 402:
        words = f"no credit is left at the vendor ({status})"
        return ApiFailed(_said(vendor, answer, words), wait=_clamped(asked, KEY_WAIT), status=status)
    if status == 429:
        words = f"too many requests for the vendor's plan ({status})"
        return ApiFailed(_said(vendor, answer, words), wait=_clamped(asked, BUSY_WAIT), status=status)
    words = f"the API failed ({status})"
    return ApiFailed(_said(vendor, answer, words), wait=_clamped(asked, DOWN_WAIT), status=status)


def _is_vendors(vendor: Vendor, answer: VendorAnswer, by_json: bool) -> bool:
    status = answer.status
    if vendor.table.vendor_statuses:
        return status in vendor.table.vendor_statuses
    if by_json:
        return not 200 <= status < 300
    if vendor.status is not None and vendor.status.kind == HEADER:
        return not 200 <= status < 300 and vendor.status.path[0] not in answer.headers
    return status in _ACCOUNT or status >= 500


def _is_own_redirect(vendor: Vendor, answer: VendorAnswer, by_json: bool) -> bool:
    if by_json:
        return True
    location = answer.headers.get("location")
    if not location or vendor.betrayed_by(location):
        return True
    scheme = vendor.base.partition("//")[0]
    try:
        absolute = parse_url(f"{scheme}{location}" if location.startswith("//") else location)
    except InvalidUrl:
        return False  # relative: within the target's site
    return origin_of(absolute) == origin_of(vendor.base)


def _clamped(asked: timedelta | None, otherwise: timedelta) -> timedelta:
    return otherwise if asked is None else min(asked, LONGEST_WAIT)


def tree_of(vendor: Vendor, answer: VendorAnswer) -> Tree:
    """The JSON of the response. Raises ApiFailed for garbage, BadResponse if it is too long."""
    return decoded(vendor, whole(vendor, answer))


def whole(vendor: Vendor, answer: VendorAnswer) -> bytes:
    """The body of the response. Raises BadResponse if its end is missing."""
    if answer.cut:
        # The same page would be too long again, so it must not be retried forever.
        raise BadResponse(f"{_who(vendor)}: the response is too long (fetch.max_body, managed max_answer).")
    return answer.body


def decoded(vendor: Vendor, body: bytes) -> Tree:
    try:
        return read(body)
    except ValueError as error:
        raise garbage(vendor, str(error)) from None


async def decoded_batch(vendor: Vendor, body: bytes) -> Tree:
    """As `decoded`; a long list of results does not block other tasks."""
    try:
        return await read_in_parts(body, vendor.results.path if vendor.results is not None else ())
    except ValueError as error:
        raise garbage(vendor, str(error)) from None


def garbage(vendor: Vendor, why: str) -> ApiFailed:
    return ApiFailed(f"{_who(vendor)}: the response makes no sense: {why}.", wait=ODD_WAIT)


def text_at(where: Where | None, answer: VendorAnswer | None, tree: Tree) -> str | None:
    """The text or number at that place, as text; None if there is none."""
    found = _at(where, answer, tree)
    if isinstance(found, bool) or not isinstance(found, str | int | float):
        return None
    return str(found)


def list_at(where: Where | None, tree: Tree) -> list[Tree] | None:
    found = _at(where, None, tree)
    return found if isinstance(found, list) else None


def part_at(where: Where | None, tree: Tree) -> Tree:
    """The part of the tree at that place; the whole tree if `where` is None."""
    return tree if where is None else _at(where, None, tree)


def state_of(vendor: Vendor, answer: VendorAnswer | None, tree: Tree) -> bool | None:
    """True: done. False: failed. None: not yet, or not reported."""
    state = text_at(vendor.state, answer, tree)
    if state is None:
        return None
    word = state.lower()
    if word in {one.lower() for one in vendor.table.done_states}:
        return True
    if word not in {one.lower() for one in vendor.table.failed_states}:
        return None
    # Of a target that answers with an error the vendor may have the page.
    return _body_of(vendor, None, part_at(vendor.result, tree)) is not None or bool(_at(vendor.results, answer, tree))


def job_failed(vendor: Vendor, answer: VendorAnswer | None, tree: Tree) -> FetchFailed:
    """The error for a job that the vendor reports as failed: presumably because of the target."""
    words = text_at(vendor.error, answer, part_at(vendor.result, tree)) or text_at(vendor.error, answer, tree) or ""
    return FetchFailed(f"{_who(vendor)}: the vendor could not get the page{_quoted(vendor, words)}.")


def page_of(
    vendor: Vendor,
    answer: VendorAnswer | None,
    tree: Tree,
    request: TransportRequest,
    *,
    around: Tree = None,
) -> Response:
    """The page in a response. `tree` is the part of its JSON that holds the page, `around` is the job around that part.

    Raises FetchFailed if the vendor reports that it has no page, ApiFailed for garbage.
    """
    body = _body_of(vendor, answer, tree)
    if body is None:
        words = text_at(vendor.error, answer, tree) or text_at(vendor.error, answer, around)
        if words:
            raise FetchFailed(f"{_who(vendor)}: the vendor could not get the page{_quoted(vendor, words)}.")
        raise garbage(vendor, f"there is no page at {vendor.table.body_at!r}")
    as_it_came = answer is not None and vendor.body.kind == BODY
    limit = request.limits.max_body
    cut = len(body) > limit or (as_it_came and answer is not None and answer.cut)
    return Response(
        url=_final_url(vendor, answer, tree, request.url),
        status=_status_of(vendor, answer, tree),
        headers=_headers_of(vendor, answer, tree),
        # If a page contains our key, it must not get into the archive.
        body=vendor.hide_in_body(body[:limit], cut=cut),
        cut=cut,
        wire_bytes=answer.wire if answer is not None else len(body),
        note=vendor.hide(answer.note) if answer is not None and as_it_came else "",
        cost=_cost_of(vendor, answer, tree, around),
    )


def _body_of(vendor: Vendor, answer: VendorAnswer | None, tree: Tree) -> bytes | None:
    if vendor.body.kind == BODY:
        return answer.body if answer is not None else None
    found = _at(vendor.body, answer, tree)
    if not isinstance(found, str):
        return None
    if vendor.table.body_encoding != "base64":
        return found.encode("utf-8", "replace")
    try:
        return base64.b64decode(found, validate=True)
    except (binascii.Error, ValueError):
        raise garbage(vendor, "the page is not base64") from None


def _status_of(vendor: Vendor, answer: VendorAnswer | None, tree: Tree) -> int:
    found = text_at(vendor.status, answer, tree)
    if found is None:
        return 200  # the vendor reports no status, but it has a page
    if found.isascii() and found.isdigit() and len(found) == 3 and 100 <= int(found) <= 599:
        return int(found)
    raise garbage(vendor, f"the page's status at {vendor.table.status_at!r} is {vendor.hide(found)[:20]!a}")


def _final_url(vendor: Vendor, answer: VendorAnswer | None, tree: Tree, asked: str) -> str:
    found = text_at(vendor.final_url, answer, tree)
    if not found or len(found) > 8192 or vendor.betrayed_by(found):
        return asked
    try:
        return without_user(parse_url(found).partition("#")[0])
    except InvalidUrl:
        return asked


def _headers_of(vendor: Vendor, answer: VendorAnswer | None, tree: Tree) -> Headers:
    pairs: list[tuple[str, str]] = []
    if vendor.headers is None:
        kind = answer.headers.get("content-type") if answer is not None and vendor.body.kind == BODY else ""
        pairs = [("Content-Type", kind)] if kind else []
    elif vendor.headers.kind == HEADERS:
        pairs = list(answer.headers) if answer is not None else []
    else:
        pairs = _told_headers(_at(vendor.headers, answer, tree))
    pairs = [
        (name, value)
        for name, value in pairs
        if name.lower() not in _NOT_THE_PAGES and len(value) <= 65536 and not vendor.betrayed_by(f"{name}: {value}")
    ]
    if vendor.body.kind != BODY and vendor.table.body_encoding != "base64":
        return Headers(_as_utf8(pairs))
    return Headers(pairs)


def _told_headers(found: Tree) -> list[tuple[str, str]]:
    """`{"name": "value"}`, `{"name": ["value", ...]}` or `[["name", "value"], ...]`."""
    if isinstance(found, dict):
        listed = [
            (name, one) for name, value in found.items() for one in (value if isinstance(value, list) else [value])
        ]
    elif isinstance(found, list):
        listed = [(pair[0], pair[1]) for pair in found if isinstance(pair, list) and len(pair) == 2]
    else:
        return []
    pairs, size = [], 0
    for name, value in listed[:128]:
        if not isinstance(name, str) or not isinstance(value, str) or not _HEADER.fullmatch(f"{name}\n{value}"):
            continue  # no server could have sent it
        size += len(name) + len(value)
        if size > MOST_HEADERS:
            break
        pairs.append((name, value))
    return pairs


def _as_utf8(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """JSON turned the page into text, and we encode that as UTF-8: the charset that the site declared no longer
    applies."""
    kind = next((value for name, value in pairs if name.lower() == "content-type"), "text/html")
    others = [pair for pair in pairs if pair[0].lower() != "content-type"]
    return [("Content-Type", f"{kind.partition(';')[0].strip() or 'text/html'}; charset=utf-8"), *others]


def _cost_of(vendor: Vendor, answer: VendorAnswer | None, tree: Tree, around: Tree) -> float | None:
    found = text_at(vendor.cost, answer, tree) or text_at(vendor.cost, answer, around)
    try:
        cost = float(found) if found is not None and len(found) < 40 else math.nan
    except ValueError:
        return None
    return cost if 0 <= cost <= MOST_COST else None  # false for NaN, too


def _at(where: Where | None, answer: VendorAnswer | None, tree: Tree) -> Tree:
    if where is None:
        return None
    if where.kind == STATUS:
        return answer.status if answer is not None else None
    if where.kind == HEADER:
        return answer.headers.get(where.path[0]) or None if answer is not None else None
    places = (at(path, tree) for path in (where.path, *where.others))
    return next((found for found in places if found is not None), None)


def _who(vendor: Vendor) -> str:
    return f"Managed API {vendor.name}"


def _said(vendor: Vendor, answer: VendorAnswer, words: str) -> str:
    said = ""
    if vendor.error is not None and len(answer.body) <= _LONG:
        try:
            said = text_at(vendor.error, answer, decoded(vendor, answer.body)) or ""
        except ApiFailed:
            said = ""
    if not said and "html" not in answer.headers.get("content-type").lower():
        said = answer.body[:_LISTENED_TO].decode("utf-8", "replace")
    return f"{_who(vendor)}: {words}{_quoted(vendor, said)}."


def _quoted(vendor: Vendor, said: str) -> str:
    # Hidden before cutting: half a key would not be recognised.
    plain = " ".join("".join(char if char.isprintable() else " " for char in said[:_LISTENED_TO]).split())
    return f": {vendor.hide(plain)[:_WORDS].rstrip('.')}" if plain else ""
