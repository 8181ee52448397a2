"""Request bodies of Firecrawl's clients. Unknown fields are refused by name; conversion.py translates the known ones.

Fields that clients always send (origin, integration, and the defaults of the Python client) are accepted and have no
effect: `skipTlsVerification` does not turn certificate checks off.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from .errors import refused

MOST_ADDRESSES = 1000  # of one batch
LONGEST_ADDRESS = 2083  # characters
Text = Annotated[str, Meta(max_length=LONGEST_ADDRESS)]
Texts = Annotated[list[Annotated[str, Meta(max_length=500)]], Meta(max_length=100)]
Milliseconds = Annotated[float, Meta(ge=0, le=600_000)]


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
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


class JsonOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The `jsonOptions` of v1."""

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
    # Always on, or without effect here:
    block_ads: Any = None
    fast_mode: Any = None
    store_in_cache: Any = None
    skip_tls_verification: Any = None
    use_mock: Any = None
    # Accepted with these values only:
    remove_base64_images: bool | None = None  # True
    mobile: bool | None = None  # False
    parsers: list[Any] | None = None  # none
    parse_pdf: bool | None = msgspec.field(default=None, name="parsePDF")  # False
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
    # Accepted with these values only, or not at all:
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
    """Raises ApiError for an option that is not supported."""
    names = body.__struct_fields__
    for name, hint in _UNDONE.items():
        if name in names and getattr(body, name) and not (name == "location" and isinstance(body, Options)):
            raise refused(body.__struct_encode_fields__[names.index(name)], hint)
    if isinstance(body, Options):
        if body.remove_base64_images is False:
            raise refused("removeBase64Images: false", "Ask for rawHtml: it has all of the page.")
        if body.mobile:
            raise refused("mobile", "Pages are rendered as on a desktop.")
        if body.parsers or body.parse_pdf:
            raise refused("parsers", "Files that are not text are not read: leave it out.")
    if isinstance(body, CrawlBody):
        if body.ignore_robots_txt:
            raise refused("ignoreRobotsTxt", "The owner of this server decides: politeness.robots.")
        if body.deduplicate_similar_urls is False:
            raise refused("deduplicateSimilarURLs: false", "Addresses of the same page are fetched once.")
