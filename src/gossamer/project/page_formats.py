"""A page in the formats that a client requested over HTTP, as JSON values."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec

from ..model.page import Snapshot
from ..model.page_content import WHOLE
from ..parse.content import html_of, markdown_of, pictures_of
from ..parse.media import Media
from ..parse.page import Page
from ..parse.schema_values import values_by_schema
from ..schedule.sources import WantedPage
from .api_requests import RequestedPage


def formatted(snapshot: Snapshot, wanted: RequestedPage | WantedPage) -> dict[str, Any]:
    """The page in each of the formats, as JSON values; None if the page has nothing of the kind."""
    page, content = Page(snapshot), wanted.content or WHOLE
    is_html = page.media is Media.HTML and page.tree is not None
    data: dict[str, Any] = {}
    for name in wanted.formats:
        match name:
            case "html":
                data[name] = None if b"\0" in page.body[:1024] else page.text
            case "text":
                data[name] = (page.main_text() or page.selector.text) if is_html else None
            case "markdown":
                data[name] = markdown_of(page, content) if is_html else None
            case "clean_html":
                data[name] = html_of(page, content) if is_html else None
            case "images":
                data[name] = pictures_of(page) if is_html else []
            case "opengraph":
                data[name] = page.structured()["opengraph"] if is_html else {}
            case "json":
                data[name] = values_by_schema(page, wanted.schema or {}) if is_html else None
            case "links":
                data[name] = page.links() if is_html else []
            case "metadata":
                data[name] = _plain(page.metadata()) if is_html else None
            case "product":
                data[name] = _plain(page.product()) if is_html else None
            case "article":
                data[name] = _plain(page.article()) if is_html else None
            case "screenshot":
                data[name] = b64encode(snapshot.screenshot).decode() if snapshot.screenshot else None
    return data


def _plain(value: object) -> Any:
    return msgspec.to_builtins(value, enc_hook=str)
