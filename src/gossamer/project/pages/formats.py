"""A page in the formats that a client requested over HTTP, as JSON values. Pure; run in a child process."""

from __future__ import annotations

from typing import Any

import msgspec

from ...errors import Permanent
from ...extract.article import main_text
from ...extract.article.content import content_html, content_markdown, pictures_of
from ...extract.schema_values import values_by_schema
from ...model.page_content import WHOLE, PageContent
from ...parse.page import Page


class WantedFormats(msgspec.Struct, frozen=True, kw_only=True):
    """`content` is the part of the page for clean_html and markdown, `schema` the JSON Schema of json."""

    formats: tuple[str, ...]
    content: PageContent | None = None
    schema: dict[str, Any] | None = None


def formatted(page: Page, wanted: WantedFormats) -> dict[str, Any]:
    """The page in each of the formats, as JSON values; None if the page has nothing of the kind. Raises Permanent for a
    part of the page that cannot be chosen so: it may come out of the queue."""
    content = wanted.content or WHOLE
    if fault := content.fault():
        raise Permanent(fault)
    readable = page.has_content
    data: dict[str, Any] = {}
    for name in wanted.formats:
        match name:
            case "html":
                data[name] = page.text if readable or b"\0" not in page.body[:1024] else None
            case "text":
                data[name] = _text_of(page, content) if readable else None
            case "markdown":
                data[name] = content_markdown(page, content) if readable else None
            case "clean_html":
                data[name] = content_html(page, content) if readable else None
            case "images":
                data[name] = pictures_of(page) if readable else []
            case "opengraph":
                data[name] = page.structured()["opengraph"] if readable else {}
            case "json":
                data[name] = values_by_schema(page, wanted.schema or {}) if readable else None
            case "links":
                data[name] = page.links() if readable else []
            case "metadata":
                data[name] = _plain(page.metadata()) if readable else None
            case "product":
                data[name] = _plain(page.product()) if readable else None
            case "article":
                data[name] = _plain(page.article()) if readable else None
    return data


def _text_of(page: Page, content: PageContent) -> str:
    text = main_text(page, parts=content)
    return text or ("" if content.chooses else page.selector.text)


def _plain(value: object) -> Any:
    return msgspec.to_builtins(value, enc_hook=str)
