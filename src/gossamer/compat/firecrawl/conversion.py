"""Requests of Firecrawl's clients, translated into our own."""

from __future__ import annotations

from typing import Any

import msgspec

from ...model.page_content import PageContent
from ...model.site_part import SitePart
from ...project.jobs.api_requests import PageAction, RequestedPage, ScrapeRequest
from ...project.sites.api_sites import SiteCrawlRequest
from ...server.answers import ApiError
from .bodies import (
    ACTIONS_DONE,
    CHANGE_TRACKING,
    FORMATS,
    OLD_FORMATS,
    CrawlBody,
    FirecrawlAction,
    FormatOptions,
    JsonOptions,
    Location,
    Options,
    ScrapeBody,
    actions_of,
    check,
    forms,
)
from .errors import refused

ABOUT = ("metadata", "opengraph")  # formats of every document
NO_MODEL = (
    "A model reads single pages (scrape) only, if one is configured. Otherwise give a schema without a prompt: it is "
    "filled from what the page itself states."
)


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is to read from a page. Without a prompt it fills in only what the page itself does not state."""

    prompt: str = ""
    schema: dict[str, Any] | None = None
    also_markdown: bool = False  # the client has requested that format as well


def model_request(options: Options) -> ModelRequest | None:
    """None if `json` is not requested."""
    for form in forms(options):
        if OLD_FORMATS.get(form.type, form.type) != "json":
            continue
        old = (options.extract if form.type == "extract" else options.json_options) or JsonOptions()
        prompt = "\n".join(filter(None, (old.system_prompt, form.prompt or old.prompt)))
        return ModelRequest(
            prompt=prompt, schema=form.schema or old.schema, also_markdown="markdown" in (options.formats or ())
        )
    return None


def requested_page(options: Options, url: str, id: str = "", *, model: bool = False) -> RequestedPage:
    """The requested page as a request of ours. With a `model`, json may have a prompt. Raises ApiError."""
    check(options)
    formats, schema = _formats(options, model=model)
    location, headers = options.location or Location(), dict(options.headers or {})
    if location.languages and not any(name.lower() == "accept-language" for name in headers):
        headers["Accept-Language"] = ", ".join(location.languages[:20])
    return RequestedPage(
        url=url,
        id=id,
        formats=formats,  # type: ignore[arg-type]  # names of ours, from the table
        schema=schema,
        content=PageContent(
            only_main=options.only_main_content is not False,
            include=tuple(options.include_tags or ()),
            exclude=tuple(options.exclude_tags or ()),
        ),
        headers=headers or None,
        wait=(options.wait_for or 0) / 1000,
        actions=tuple(_actions(actions_of(options))),
        country=_country(location.country),
        use_residential=options.proxy in ("stealth", "enhanced"),
    )


def scrape_request(body: ScrapeBody, longest: float, *, model: bool = False) -> ScrapeRequest:
    """Raises ApiError. `longest` is how long a client may wait, in seconds."""
    page = requested_page(body, body.url, model=model)
    values = {name: getattr(page, name) for name in page.__struct_fields__}
    timeout = min(body.timeout / 1000 if body.timeout is not None else 60.0, longest)
    return ScrapeRequest(**values, timeout=timeout, max_age=(body.max_age or 0) / 1000)


def site_crawl_request(body: CrawlBody) -> SiteCrawlRequest:
    """Raises ApiError."""
    check(body)
    options = body.scrape_options or Options()
    mode = body.sitemap or ("skip" if body.ignore_sitemap else "include")
    depth = body.max_discovery_depth if body.max_discovery_depth is not None else body.max_depth
    return SiteCrawlRequest(
        page=requested_page(options, body.url),
        part=SitePart(
            url=body.url,
            include=tuple(body.include_paths or ()),
            exclude=tuple(body.exclude_paths or ()),
            match_address=bool(body.regex_on_full_url),
            whole_host=bool(body.crawl_entire_domain or body.allow_backward_links),
            subdomains=bool(body.allow_subdomains),
            other_sites=bool(body.allow_external_links),
            drop_query=bool(body.ignore_query_parameters),
        ),
        limit=body.limit,
        depth=depth,
        links=mode != "only",
        sitemaps=mode != "skip",
        rate=f"{3600 / body.delay:.6f}/h" if body.delay else None,
        site_concurrency=body.max_concurrency,
    )


def _formats(options: Options, *, model: bool) -> tuple[tuple[str, ...], dict[str, Any] | None]:
    """Our names of the formats, and the schema of `json`."""
    wanted: list[str] = []
    schema: dict[str, Any] | None = None
    compared: dict[str, Any] | None = None
    for form in forms(options):
        name = OLD_FORMATS.get(form.type, form.type)
        if name not in FORMATS:
            raise refused(f"The format {form.type[:50]!r}", f"There is {', '.join(FORMATS)}.")
        if name == CHANGE_TRACKING:
            compared = _compared(form, options)
        if form.quality is not None or form.viewport:
            raise refused("A quality or viewport of screenshots", "A screenshot is a PNG of the whole page.")
        if name == "json":
            old = options.extract if form.type == "extract" else options.json_options
            schema = _schema(form, old or JsonOptions(), model=model)
            if model:
                wanted.append("markdown")  # what the model reads
            if schema is None:
                continue
        wanted.append(FORMATS[name])
    if compared is not None and schema is not None and compared != schema:
        raise refused("Another schema for changeTracking than for json", "Ask for both in two requests.")
    return (*dict.fromkeys(wanted), *ABOUT), schema or compared


def _compared(form: FormatOptions, options: Options) -> dict[str, Any] | None:
    """The schema whose fields are compared; None without the mode `json`."""
    old = options.change_tracking_options
    modes = form.modes or (old.modes if old is not None else None) or ()
    schema = form.schema or (old.schema if old is not None else None)
    if "json" not in modes:
        return None
    if not schema or not isinstance(schema.get("properties"), dict):
        raise ApiError(422, "invalid", "changeTracking with the mode json needs a schema with properties.")
    return schema


def _schema(form: FormatOptions, old: JsonOptions, *, model: bool) -> dict[str, Any] | None:
    """The schema to fill from what the page states; None if only a model could fill it."""
    prompted = bool(form.prompt or old.prompt or old.system_prompt)
    if old.agent or form.check_prompt_injection or (prompted and not model):
        raise refused("json with a prompt", NO_MODEL)
    schema = form.schema or old.schema
    if not schema or not isinstance(schema.get("properties"), dict):
        if model and (prompted or schema):
            return None
        raise ApiError(422, "invalid", f"json needs a schema with properties. {NO_MODEL}")
    return schema


def _actions(given: list[FirecrawlAction]) -> list[PageAction]:
    made: list[PageAction] = []
    clicked = ""  # the element that `write` writes into
    for one in given:
        try:
            match one.type:
                case "wait":
                    seconds = (one.milliseconds or (30_000 if one.selector else 0)) / 1000
                    made.append(PageAction(do="wait", selector=one.selector or "", seconds=seconds))
                case "click" if not one.all:
                    clicked = one.selector or ""
                    made.append(PageAction(do="click", selector=clicked))
                case "write":
                    made.append(PageAction(do="type", selector=clicked, text=one.text or ""))
                case "press":
                    made.append(PageAction(do="press", text=one.key or ""))
                case "scroll" if one.direction in (None, "down"):
                    made.append(PageAction(do="scroll", selector=one.selector or ""))
                case _:
                    raise refused(f"The action {one.type[:50]!r}, as it is given,", f"There is {ACTIONS_DONE}.")
        except ValueError as error:
            raise ApiError(422, "invalid", str(error)) from None
    return made


def _country(text: str | None) -> str | None:
    if text is None or (len(text) == 2 and text.isascii() and text.isalpha()):
        return text
    raise ApiError(422, "invalid", f"{text[:50]!r} is no country: write two letters, as DE.")
