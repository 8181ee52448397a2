"""What clients of Firecrawl send, and the same in our words. Unknown fields are refused by name.

Fields that clients send without being asked (origin, integration, and the defaults of the Python client) are taken, and
change nothing: `skipTlsVerification` does not turn the check of certificates off.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ...model.page_content import PageContent
from ...model.site_part import SitePart
from ...project.api_requests import PageAction, RequestedPage, ScrapeRequest
from ...project.api_sites import SiteCrawlRequest
from ..answers import ApiError
from .errors import refused

MOST_ADDRESSES = 1000  # of one batch
LONGEST_ADDRESS = 2083  # characters
FORMATS = {  # Firecrawl's name of a format, and ours
    "markdown": "markdown",
    "html": "clean_html",
    "rawHtml": "html",
    "links": "links",
    "images": "images",
    "screenshot": "screenshot",
    "json": "json",
    "product": "product",
}
ABOUT = ("metadata", "opengraph")  # of every document
_ALSO = {"screenshot@fullPage": "screenshot", "extract": "json"}  # names of v1

Text = Annotated[str, Meta(max_length=LONGEST_ADDRESS)]
Texts = Annotated[list[Annotated[str, Meta(max_length=500)]], Meta(max_length=100)]
Milliseconds = Annotated[float, Meta(ge=0, le=600_000)]


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What every body may have."""

    origin: Any = None  # who calls
    integration: Any = None


class FormatOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A format with its options."""

    type: str
    schema: dict[str, Any] | None = None
    prompt: str | None = None
    check_prompt_injection: bool | None = None
    full_page: bool | None = None
    quality: int | None = None
    viewport: dict[str, Any] | None = None


class JsonOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Of v1."""

    schema: dict[str, Any] | None = None
    prompt: str | None = None
    system_prompt: str | None = None
    agent: Any = None


class Location(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    country: str | None = None
    languages: list[str] | None = None


class FirecrawlAction(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    type: str
    milliseconds: Annotated[int, Meta(ge=0, le=60_000)] | None = None
    selector: Annotated[str, Meta(max_length=500)] | None = None
    all: bool | None = None
    text: Annotated[str, Meta(max_length=5000)] | None = None
    key: Annotated[str, Meta(max_length=50)] | None = None
    direction: str | None = None


class Options(Body, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Options of a page."""

    formats: Annotated[list[str | FormatOptions], Meta(max_length=20)] | None = None
    only_main_content: bool | None = None
    include_tags: Texts | None = None
    exclude_tags: Texts | None = None
    wait_for: Annotated[int, Meta(ge=0, le=60_000)] | None = None
    timeout: Milliseconds | None = None
    max_age: Annotated[float, Meta(ge=0, le=31_622_400_000)] | None = None
    headers: dict[str, str] | None = None
    actions: Annotated[list[FirecrawlAction], Meta(max_length=50)] | None = None
    location: Location | None = None
    proxy: Literal["basic", "auto", "stealth", "enhanced"] | None = None
    json_options: JsonOptions | None = None
    extract: JsonOptions | None = None
    # Done in any case, or without an effect here:
    block_ads: Any = None
    fast_mode: Any = None
    store_in_cache: Any = None
    skip_tls_verification: Any = None
    use_mock: Any = None
    # Only as given here:
    remove_base64_images: bool | None = None  # True
    mobile: bool | None = None  # False
    parsers: list[Any] | None = None  # none
    parse_pdf: bool | None = msgspec.field(default=None, name="parsePDF")  # False
    # Promises that are not made:
    min_age: Any = None
    zero_data_retention: Any = None
    redact_pii: Any = msgspec.field(default=None, name="redactPII")
    threat_protection: Any = None
    audit_metadata: Any = None
    lockdown: Any = None
    check_prompt_injection: Any = None
    domain_tools: Any = None
    profile: Any = None
    agent: Any = None
    change_tracking_options: Any = None


class ScrapeBody(Options, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    url: Text


class Webhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: Text
    headers: dict[str, str] | None = None
    metadata: dict[str, Any] | None = None
    events: list[str] | None = None


class BatchBody(Options, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    urls: list[str]
    webhook: Text | Webhook | None = None
    append_to_id: Any = None
    ignore_invalid_urls: bool | None = msgspec.field(default=None, name="ignoreInvalidURLs")
    max_concurrency: Any = None


class CrawlBody(Body, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    url: Text
    limit: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    include_paths: Texts | None = None
    exclude_paths: Texts | None = None
    regex_on_full_url: bool | None = msgspec.field(default=None, name="regexOnFullURL")
    max_discovery_depth: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    sitemap: Literal["include", "skip", "only"] | None = None
    ignore_query_parameters: bool | None = None
    crawl_entire_domain: bool | None = None
    allow_external_links: bool | None = None
    allow_subdomains: bool | None = None
    delay: Annotated[float, Meta(gt=0, le=3600)] | None = None  # seconds
    webhook: Text | Webhook | None = None
    scrape_options: Options | None = None
    # Of v1:
    max_depth: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    ignore_sitemap: bool | None = None
    allow_backward_links: bool | None = None
    # Only as given here, or not at all:
    deduplicate_similar_urls: bool | None = msgspec.field(default=None, name="deduplicateSimilarURLs")  # True
    ignore_robots_txt: bool | None = None  # False
    robots_user_agent: Any = None
    max_concurrency: Any = None
    prompt: Any = None
    zero_data_retention: Any = None
    threat_protection: Any = None
    audit_metadata: Any = None


class SearchSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str


class SearchBody(Body, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    query: Annotated[str, Meta(min_length=1, max_length=500)]
    limit: Annotated[int, Meta(ge=1, le=100)] | None = None
    sources: Annotated[list[str | SearchSource], Meta(max_length=3)] | None = None
    include_domains: Texts | None = None
    exclude_domains: Texts | None = None
    tbs: Annotated[str, Meta(max_length=50)] | None = None
    timeout: Milliseconds | None = None
    ignore_invalid_urls: Any = msgspec.field(default=None, name="ignoreInvalidURLs")  # they are left out
    highlights: Any = None
    scrape_options: Options | None = None
    # Not at all:
    categories: Any = None
    location: Any = None
    country: Any = None
    lang: Any = None
    filter: Any = None
    enterprise: Any = None
    threat_protection: Any = None
    domain_tools: Any = None
    tool_detail: Any = None


class MapBody(Body, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    url: Text
    search: Annotated[str, Meta(max_length=500)] | None = None
    sitemap: Literal["include", "skip", "only"] | None = None
    include_subdomains: bool | None = None
    ignore_query_parameters: bool | None = None
    limit: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    timeout: Milliseconds | None = None
    # Of v1:
    ignore_sitemap: bool | None = None
    sitemap_only: bool | None = None
    # Not at all:
    location: Any = None
    ignore_cache: Any = None
    use_index: Any = None
    filter_by_path: Any = None
    threat_protection: Any = None
    audit_metadata: Any = None


NO_MODEL = (
    "A model is asked for single pages (scrape), where one is configured. Else give a schema without a prompt: it is "
    "filled by what the page states itself."
)
_UNDONE = {
    "min_age": "Leave it out; maxAge is done.",
    "zero_data_retention": "What is fetched is archived: the owner of this server decides for how long.",
    "redact_pii": "Remove personal data where you use the page.",
    "threat_protection": "Private addresses are refused in any case.",
    "audit_metadata": "Writes are in the audit log, with the name of the key.",
    "lockdown": "Leave it out.",
    "check_prompt_injection": "Take the text of a page as data, not as instructions.",
    "domain_tools": "Leave it out.",
    "profile": "Leave it out.",
    "agent": "Leave it out.",
    "change_tracking_options": "See the history of records: GET /api/v1/records.",
    "append_to_id": "Begin another batch.",
    "max_concurrency": "The politeness of the project holds. To be slower, use delay in a crawl.",
    "robots_user_agent": "The project has one name: fetch.user_agent.",
    "prompt": "There is no model here: use includePaths and excludePaths.",
    "location": "Leave it out.",
    "ignore_cache": "Leave it out: a map is always made anew.",
    "use_index": "Leave it out: a map is always made anew.",
    "filter_by_path": "Use search.",
    "categories": "Say it in the query.",
    "country": "The search engine is the same for all.",
    "lang": "The search engine is the same for all.",
    "filter": "Say it in the query.",
    "enterprise": "Leave it out.",
    "tool_detail": "Leave it out.",
}


def check(body: Body) -> None:
    """Raises ApiError for an option that is not done."""
    names = body.__struct_fields__
    for name, hint in _UNDONE.items():
        if name in names and getattr(body, name) and not (name == "location" and isinstance(body, Options)):
            raise refused(body.__struct_encode_fields__[names.index(name)], hint)
    if isinstance(body, Options):
        if body.remove_base64_images is False:
            raise refused("removeBase64Images: false", "Ask for rawHtml: it has all of the page.")
        if body.mobile:
            raise refused("mobile", "Pages are shown as on a desk.")
        if body.parsers or body.parse_pdf:
            raise refused("parsers", "Files that are no text are not read: leave it out.")
    if isinstance(body, CrawlBody):
        if body.ignore_robots_txt:
            raise refused("ignoreRobotsTxt", "The owner of this server decides: politeness.robots.")
        if body.deduplicate_similar_urls is False:
            raise refused("deduplicateSimilarURLs: false", "Addresses of the same page are fetched once.")


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is to read in a page. Without a prompt it fills in what the page does not state itself."""

    prompt: str = ""
    schema: dict[str, Any] | None = None
    also_markdown: bool = False  # the client has asked for that format, too


def model_request(options: Options) -> ModelRequest | None:
    """None where no `json` is asked for."""
    for one in options.formats or ():
        name = one if isinstance(one, str) else one.type
        if _ALSO.get(name, name) != "json":
            continue
        old = (options.extract if one == "extract" else options.json_options) or JsonOptions()
        form = FormatOptions(type=name) if isinstance(one, str) else one
        prompt = "\n".join(filter(None, (old.system_prompt, form.prompt or old.prompt)))
        return ModelRequest(
            prompt=prompt, schema=form.schema or old.schema, also_markdown="markdown" in (options.formats or ())
        )
    return None


def requested_page(options: Options, url: str, id: str = "", *, model: bool = False) -> RequestedPage:
    """A page in our words. With a `model`, json may have a prompt. Raises ApiError."""
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
        actions=tuple(_actions(options.actions or [])),
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
        rate=f"{3600 / body.delay:.6f}/h" if body.delay is not None else None,
    )


def _formats(options: Options, *, model: bool) -> tuple[tuple[str, ...], dict[str, Any] | None]:
    """Our names of the formats, and the schema of `json`."""
    wanted: list[str] = []
    schema: dict[str, Any] | None = None
    for one in ["markdown"] if options.formats is None else options.formats:
        form = FormatOptions(type=one) if isinstance(one, str) else one
        name = _ALSO.get(form.type, form.type)
        if name not in FORMATS:
            raise refused(f"The format {form.type[:50]!r}", f"There is {', '.join(FORMATS)}.")
        if form.quality is not None or form.viewport:
            raise refused("A quality or viewport of screenshots", "A screenshot is a PNG of the whole page.")
        if name == "json":
            old = options.extract if one == "extract" else options.json_options
            schema = _schema(form, old or JsonOptions(), model=model)
            if model:
                wanted.append("markdown")  # what the model reads
            if schema is None:
                continue
        wanted.append(FORMATS[name])
    return (*dict.fromkeys(wanted), *ABOUT), schema


def _schema(form: FormatOptions, old: JsonOptions, *, model: bool) -> dict[str, Any] | None:
    """The schema that the page's own statements fill; None where a model alone can tell what is meant."""
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
                    known = "wait, click (one element), write (after a click), press and scroll (down)"
                    raise refused(f"The action {one.type[:50]!r}, as it is given,", f"There is {known}.")
        except ValueError as error:
            raise ApiError(422, "invalid", str(error)) from None
    return made


def _country(text: str | None) -> str | None:
    if text is None or (len(text) == 2 and text.isascii() and text.isalpha()):
        return text
    raise ApiError(422, "invalid", f"{text[:50]!r} is no country: write two letters, as DE.")
