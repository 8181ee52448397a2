"""Request bodies of Firecrawl's clients. Unknown fields are refused by name; conversion.py translates the known ones.
What is taken and not done as written is a warning in the answer (`warnings_of`).

Fields that clients always send (origin, integration, and the defaults of the Python client) are accepted and have no
effect: `skipTlsVerification` does not turn certificate checks off.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from ...server.answers import ApiError
from .errors import refused

CHANGE_TRACKING = "changeTracking"
FORMATS = {  # Firecrawl's name of a format, and ours
    "markdown": "markdown",
    "html": "clean_html",
    "rawHtml": "html",
    "links": "links",
    "images": "images",
    "screenshot": "screenshot",
    "json": "json",
    "product": "product",
    CHANGE_TRACKING: "changes",
}
OLD_FORMATS = {"screenshot@fullPage": "screenshot", "extract": "json"}  # names of v1
KNOWN_FORMATS = (*FORMATS, *OLD_FORMATS)
KNOWN_ACTIONS = ("wait", "click", "write", "press", "scroll")
ACTIONS_DONE = "wait, click (one element), write (after a click), press and scroll (down)"
_Kind = TypeVar("_Kind")
MOST_ADDRESSES = 1000  # of one batch
LONGEST_ADDRESS = 2083  # characters
Text = Annotated[str, Meta(max_length=LONGEST_ADDRESS)]
Texts = Annotated[list[Annotated[str, Meta(max_length=500)]], Meta(max_length=100)]
Milliseconds = Annotated[float, Meta(ge=0, le=600_000)]


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The fields that every body may have."""

    origin: Any = None  # the name of the client library
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
    modes: list[Literal["git-diff", "json"]] | None = None
    tag: str | None = None


class JsonOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The `jsonOptions` of v1."""

    schema: dict[str, Any] | None = None
    prompt: str | None = None
    system_prompt: str | None = None
    agent: Any = None


class ChangeTrackingOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The `changeTrackingOptions` of v1."""

    modes: list[Literal["git-diff", "json"]] | None = None
    schema: dict[str, Any] | None = None
    prompt: str | None = None
    tag: str | None = None


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


class Options(RequestBody, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Options of a page."""

    formats: Annotated[list[str | dict[str, Any]], Meta(max_length=20)] | None = None
    only_main_content: bool | None = None
    include_tags: Texts | None = None
    exclude_tags: Texts | None = None
    wait_for: Annotated[int, Meta(ge=0, le=60_000)] | None = None
    timeout: Milliseconds | None = None
    max_age: Annotated[float, Meta(ge=0, le=31_622_400_000)] | None = None
    headers: dict[str, str] | None = None
    actions: Annotated[list[dict[str, Any]], Meta(max_length=50)] | None = None
    location: Location | None = None
    proxy: Literal["basic", "auto", "stealth", "enhanced"] | None = None
    json_options: JsonOptions | None = None
    extract: JsonOptions | None = None
    # Always on, or without effect here:
    block_ads: Any = None
    fast_mode: Any = None
    store_in_cache: Any = None
    skip_tls_verification: Any = None
    use_mock: Any = None
    # Accepted with these values only:
    remove_base64_images: bool | None = None  # True
    # Taken, with a warning where it is not done as written:
    mobile: bool | None = None
    parsers: Annotated[list[str | dict[str, Any]], Meta(max_length=20)] | None = None
    parse_pdf: bool | None = msgspec.field(default=None, name="parsePDF")
    change_tracking_options: ChangeTrackingOptions | None = None  # of v1
    # Promises that this server does not make:
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
    max_concurrency: Annotated[int, Meta(ge=1, le=10_000)] | None = None


class CrawlBody(RequestBody, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
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
    delay: Annotated[float, Meta(ge=0, le=3600)] | None = None  # seconds
    max_concurrency: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    webhook: Text | Webhook | None = None
    scrape_options: Options | None = None
    # Of v1:
    max_depth: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    ignore_sitemap: bool | None = None
    allow_backward_links: bool | None = None
    # Accepted with these values only, or not at all:
    deduplicate_similar_urls: bool | None = msgspec.field(default=None, name="deduplicateSimilarURLs")  # True
    ignore_robots_txt: bool | None = None  # False
    robots_user_agent: Any = None
    prompt: Any = None
    zero_data_retention: Any = None
    threat_protection: Any = None
    audit_metadata: Any = None


class SearchSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str


class SearchBody(RequestBody, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    query: Annotated[str, Meta(min_length=1, max_length=500)]
    limit: Annotated[int, Meta(ge=1, le=100)] | None = None
    sources: Annotated[list[str | SearchSource], Meta(max_length=3)] | None = None
    include_domains: Texts | None = None
    exclude_domains: Texts | None = None
    tbs: Annotated[str, Meta(max_length=50)] | None = None
    timeout: Milliseconds | None = None
    ignore_invalid_urls: Any = msgspec.field(default=None, name="ignoreInvalidURLs")  # results to leave out
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


class MapBody(RequestBody, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
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


_UNDONE = {
    "min_age": "Leave it out; maxAge is supported.",
    "zero_data_retention": "Fetched pages are archived: the owner of this server decides for how long.",
    "redact_pii": "Remove personal data where you use the page.",
    "threat_protection": "Private addresses are always refused.",
    "audit_metadata": "Writes are in the audit log, with the name of the key.",
    "lockdown": "Leave it out.",
    "check_prompt_injection": "Take the text of a page as data, not as instructions.",
    "domain_tools": "Leave it out.",
    "profile": "Leave it out.",
    "agent": "Leave it out.",
    "append_to_id": "Begin another batch.",
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


def check(body: RequestBody) -> None:
    """Raises ApiError for an option that is not supported."""
    names = body.__struct_fields__
    for name, hint in _UNDONE.items():
        if name in names and getattr(body, name) and not (name == "location" and isinstance(body, Options)):
            raise refused(body.__struct_encode_fields__[names.index(name)], hint)
    if isinstance(body, Options):
        if body.remove_base64_images is False:
            raise refused("removeBase64Images: false", "Ask for rawHtml: it has all of the page.")
        tracking = [body.change_tracking_options, *(one for one in forms(body) if one.type == CHANGE_TRACKING)]
        if any(one is not None and one.prompt for one in tracking):
            raise refused("changeTracking with a prompt", "Give a schema: what the page itself states is compared.")
    if isinstance(body, CrawlBody):
        if body.ignore_robots_txt:
            raise refused("ignoreRobotsTxt", "The owner of this server decides: politeness.robots.")
        if body.deduplicate_similar_urls is False:
            raise refused("deduplicateSimilarURLs: false", "Addresses of the same page are fetched once.")


def forms(options: Options) -> list[FormatOptions]:
    """The formats, each with its options. Raises ApiError, with the name of the format."""
    made = []
    for one in ["markdown"] if options.formats is None else options.formats:
        if isinstance(one, str):
            made.append(FormatOptions(type=one))
            continue
        name = str(one.get("type", ""))[:50]
        if name not in KNOWN_FORMATS:
            raise refused(f"The format {name!r}", f"There is {', '.join(KNOWN_FORMATS)}.")
        made.append(_converted(one, FormatOptions, f"The format {name}"))
    return made


def actions_of(options: Options) -> list[FirecrawlAction]:
    """Raises ApiError, with the type of the action."""
    made = []
    for one in options.actions or ():
        name = str(one.get("type", ""))[:50]
        if name not in KNOWN_ACTIONS:
            raise refused(f"The action {name!r}", f"There is {ACTIONS_DONE}.")
        made.append(_converted(one, FirecrawlAction, f"The action {name}"))
    return made


def _converted(value: dict[str, Any], kind: type[_Kind], what: str) -> _Kind:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ApiError(422, "invalid", f"{what}: {error}") from None


def warnings_of(body: RequestBody) -> list[str]:
    """What of these options is taken, and not done as they say."""
    told: list[str] = []
    if isinstance(body, Options):
        if body.mobile:
            told.append("mobile: pages are rendered as on a desktop.")
        told += _parsers_told(body)
        tags = [one.tag for one in forms(body) if one.tag]
        if tags or (body.change_tracking_options is not None and body.change_tracking_options.tag):
            told.append("changeTracking: there is one history for each page and key, whatever the tag.")
    if isinstance(body, BatchBody) and body.max_concurrency is not None:
        told.append("maxConcurrency: it holds for each site, and can only make the job slower.")
    if isinstance(body, CrawlBody):
        if body.max_concurrency is not None and (body.allow_external_links or body.allow_subdomains):
            told.append("maxConcurrency: it holds for each site, and can only make the job slower.")
        if body.delay == 0:
            told.append("delay: 0: the pace that the project keeps holds.")
        told += warnings_of(body.scrape_options) if body.scrape_options is not None else []
    return told


def _parsers_told(body: Options) -> list[str]:
    """Documents are always read, as far as they can be; what else parsers ask for."""
    if body.parse_pdf is False or body.parsers == []:
        return ["parsers: documents (PDF, Word, Excel ...) are read nevertheless; rawHtml of them is empty."]
    told = []
    for one in body.parsers or ():
        name = one if isinstance(one, str) else str(one.get("type", ""))
        if name != "pdf":
            told.append(f"parsers: {name[:50]!r} is not known; documents are read as they are.")
        elif not isinstance(one, str) and one.keys() - {"type"} and one.get("mode", "auto") not in ("auto", "fast"):
            told.append("parsers: scanned pages of a PDF have no text here.")
        if not isinstance(one, str) and one.get("maxPages") is not None:
            told.append("parsers: maxPages has no effect: a PDF is read as a whole.")
    return told
