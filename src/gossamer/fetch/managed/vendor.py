"""A vendor as a value, and how it is built: its table in gossamer.toml, completed by a preset and checked before
anything is sent."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NoReturn, get_type_hints
from urllib.parse import urlsplit

import msgspec

from ...errors import InvalidUrl, Misconfigured
from ...model.url import host_of, parse_url
from ...settings.tables import Managed
from ...units import Secret, parse_duration
from ..addresses import is_public
from .secret_filter import Hiding, hiding_of

SYNC, ASYNC, BATCH = MODES = ("sync", "async", "batch")
STATUS, BODY, HEADERS, HEADER, JSON = "http:status", "http:body", "http:headers", "header", "json"

Parameter = tuple[str, object]

_TOKEN = re.compile(r"(?=[^0-9]*[0-9])[A-Za-z0-9_+/=.~-]{16,}")


class Where(msgspec.Struct, frozen=True):
    """A place in a response: its own status, body or headers, one header, or a path in its JSON, with `others` where it
    may be as well."""

    kind: str
    path: tuple[str, ...] = ()
    others: tuple[tuple[str, ...], ...] = ()


class Vendor(msgspec.Struct, frozen=True, kw_only=True):
    """A vendor's table after all checks. `key` is secret, and `extra` may be: neither prints."""

    name: str
    table: Managed
    base: str  # of the API, without a final slash
    key: Secret
    key_in: str  # "query" or "header"
    key_name: str
    render: Parameter | None
    residential: Parameter | None
    extra: tuple[Parameter, ...]
    body: Where
    status: Where | None
    final_url: Where | None
    headers: Where | None
    cost: Where | None
    error: Where | None
    job_id: Where | None
    state: Where | None
    result: Where | None
    batch_id: Where | None
    results: Where | None
    tag: Where | None
    listen: tuple[str, int] | None

    def setting(self, field: str) -> str:
        """The full name of one of its settings."""
        return f"managed.{self.name}.{field}"

    def __repr__(self) -> str:
        return f"Vendor({self.name!r}, {self.base!r}, key=***)"

    def hide(self, text: str) -> str:
        """The text without the key, in any spelling, and without tokens of `extra`."""
        for secret in self._secrets():
            text = secret.hide(text)
        return text

    def hide_in_body(self, body: bytes, *, cut: bool) -> bytes:
        """As `hide`, for a page. `cut`: its end is missing."""
        for secret in self._secrets():
            body = secret.hide_in_body(body, cut=cut)
        return body

    def betrayed_by(self, text: str) -> bool:
        """Does the text contain the key, or a token of `extra`?"""
        return any(secret.holds(text) for secret in self._secrets())

    def _secrets(self) -> list[Hiding]:
        tokens = [value for _, value in self.extra if isinstance(value, str) and _TOKEN.fullmatch(value)]
        return [hiding_of(secret) for secret in (self.key.reveal(), *tokens)]


BATCH_LIMIT = 100

_NAME = re.compile(r"[A-Za-z0-9_.\[\]-]+")  # parameter names
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_STEP = re.compile(r"[^.\s:]+")


def _read_presets() -> dict[str, dict[str, Any]]:
    text = files(__package__).joinpath("presets.toml").read_text(encoding="utf-8")
    tables: dict[str, dict[str, Any]] = tomllib.loads(text)["managed"]
    return {name: {field: _read(field, value) for field, value in table.items()} for name, table in tables.items()}


def _read(field: str, value: Any) -> Any:  # Any: the types of TOML
    if get_type_hints(Managed)[field] is timedelta:
        return parse_duration(value)
    return tuple(value) if isinstance(value, list) else value


PRESETS = _read_presets()


def describe(
    name: str, table: Managed, *, environ: Mapping[str, str] | None = None, root: Path | None = None
) -> Vendor:
    """The vendor that a `[managed.NAME]` table describes. Raises Misconfigured.

    The key comes from `key`, else from the variable `env`, else from the file `secret` (a path from `root`).
    """
    return _VendorReader(name, _with_preset(name, table)).vendor(
        os.environ if environ is None else environ, root or Path()
    )


def _with_preset(name: str, table: Managed) -> Managed:
    if not table.preset:
        return table
    if table.preset not in PRESETS:
        raise Misconfigured(f"Setting managed.{name}.preset: must be one of {', '.join(PRESETS)}, or empty.")
    # An empty field was not set: every field that a preset can fill is empty by default.
    given = {field: value for field, value in PRESETS[table.preset].items() if not getattr(table, field)}
    return msgspec.structs.replace(table, **given)


class _VendorReader:
    def __init__(self, name: str, table: Managed) -> None:
        self._name = name
        self._table = table

    def vendor(self, environ: Mapping[str, str], root: Path) -> Vendor:
        table = self._table
        if re.fullmatch(r"[\w-]{1,40}", self._name) is None:
            raise Misconfigured(f"[managed.{self._name!a}]: a name has at most 40 letters, digits, - and _.")
        self._check_mode()
        base = self._address("url").rstrip("/")
        self._check_request()
        self._check_measures()
        key_in, key_name = self._key_place()
        vendor = Vendor(
            name=self._name,
            table=table,
            base=base,
            key=self._key(environ, root),
            key_in=key_in,
            key_name=key_name,
            render=self._parameter("render_param", table.render_param, bare=True),
            residential=self._parameter("residential_param", table.residential_param, bare=True),
            extra=tuple(filter(None, (self._parameter("extra", one.reveal(), bare=False) for one in table.extra))),
            body=self._demanded("body_at", BODY, JSON),
            status=self._where("status_at", STATUS, HEADER, JSON),
            final_url=self._where("final_url_at", HEADER, JSON),
            headers=self._where("headers_at", HEADERS, JSON),
            cost=self._where("cost_at", HEADER, JSON),
            error=self._where("error_at", HEADER, JSON),
            job_id=self._where("job_id_at", HEADER, JSON),
            state=self._where("state_at", HEADER, JSON),
            result=self._where("result_at", JSON),
            batch_id=self._where("batch_id_at", HEADER, JSON),
            results=self._where("results_at", JSON),
            tag=self._where("tag_at", JSON),
            listen=self._listen(),
        )
        if table.mode == ASYNC:
            self._check_job(vendor)
        if table.mode == BATCH:
            self._check_batch(vendor)
        return vendor

    def _refuse(self, field: str, message: str) -> NoReturn:
        raise Misconfigured(f"Setting managed.{self._name}.{field}: {message}")

    def _choice(self, field: str, *allowed: str) -> None:
        if getattr(self._table, field) not in allowed:
            self._refuse(field, f"must be {' or '.join(repr(one) for one in allowed)}.")

    def _check_mode(self) -> None:
        self._choice("mode", *MODES)

    def _check_request(self) -> None:
        table = self._table
        self._choice("method", "GET", "POST")
        self._choice("send", "query", "json")
        if table.method == "GET" and table.send == "json":
            self._refuse("send", "a GET has no body; write send = 'query', or method = 'POST'.")
        self._path("path")
        for field in ("url_param", "wait_for_param", "country_param"):
            value = getattr(table, field)
            if value and _NAME.fullmatch(value) is None:
                self._refuse(field, "must be the name of a parameter: letters, digits, . _ - and brackets.")
        if not table.url_param:
            self._refuse("url_param", "is missing: the name of the parameter that holds the page's address.")
        if table.body_encoding not in ("", "text", "base64"):
            self._refuse("body_encoding", "must be 'text' or 'base64'.")
        for field in ("vendor_statuses", "failed_statuses"):
            if any(not 300 <= status <= 599 for status in getattr(table, field)):
                self._refuse(field, "must contain only statuses between 300 and 599.")
        if table.country and re.fullmatch(r"[A-Za-z-]{2,10}", table.country) is None:
            self._refuse("country", "must be a code such as 'de'.")

    def _check_measures(self) -> None:
        table = self._table
        for field in ("timeout", "deadline", "poll", "max_poll"):
            if getattr(table, field) <= timedelta(0):
                self._refuse(field, "must be longer than 0s.")
        for field in ("batch_window", "callback_wait"):
            if getattr(table, field) < timedelta(0):
                self._refuse(field, "must be 0s or more.")
        if not 1 <= table.batch_size <= BATCH_LIMIT:
            self._refuse("batch_size", f"must be 1 to {BATCH_LIMIT}.")
        if table.max_answer.bytes < 1024:
            self._refuse("max_answer", "must be 1KiB or more.")

    def _check_job(self, vendor: Vendor) -> None:
        self._path("submit_path")
        self._path("job_path", with_id=True)
        self._states(vendor)
        if vendor.job_id is None:
            self._refuse("job_id_at", "is missing: where the response holds the job's id, such as 'job_id'.")

    def _check_batch(self, vendor: Vendor) -> None:
        table = self._table
        self._path("batch_path")
        self._states(vendor)
        for field, example in (("batch_param", "requests"), ("batch_tag", "id"), ("results_at", "results")):
            if not getattr(table, field):
                self._refuse(field, f"is missing; write for example {field} = {example!r}.")
        if vendor.tag is None:
            self._refuse("tag_at", "is missing: where a result holds the id that we gave the page.")
        if table.batch_job_path:
            self._path("batch_job_path", with_id=True)
            if vendor.batch_id is None:
                self._refuse("batch_id_at", "is missing: where the response holds the batch's id.")
        elif not table.callback_url:
            self._refuse("batch_job_path", "is missing, and so is callback_url: no result could reach us.")
        if bool(table.callback_url) != (vendor.listen is not None):
            self._refuse(
                "callback_url", "goes together with callback_listen: the address for the vendor, and where we listen."
            )
        if table.callback_url:
            self._address("callback_url")
            if not table.callback_param:
                self._refuse("callback_param", "is missing: the parameter that tells the vendor where to call back.")

    def _states(self, vendor: Vendor) -> None:
        if vendor.body.kind != JSON:
            self._refuse("body_at", f"must be a path in the JSON for mode = {self._table.mode!r}.")
        if vendor.state is None:
            self._refuse("state_at", "is missing: where the response holds the job's state, such as 'status'.")
        if not self._table.done_states:
            self._refuse("done_states", "is missing; write for example done_states = ['completed'].")

    def _path(self, field: str, *, with_id: bool = False) -> None:
        value = getattr(self._table, field)
        if not value.startswith("/") or re.search(r"[^\x21-\x7e]|[?#]|//|/\.\.?(/|$)", value):
            self._refuse(field, "must be a path such as '/scrape', without a query.")
        if value.count("{id}") != with_id or "{" in value.replace("{id}", ""):
            self._refuse(field, "must contain {id} once." if with_id else "must contain no braces.")

    def _address(self, field: str) -> str:
        """An http(s) URL without credentials and query, and not an obviously private one."""
        given = getattr(self._table, field)
        if not given:
            self._refuse(field, "is missing: an address such as 'https://api.example.com'.")
        try:
            address = parse_url(given)
        except InvalidUrl:
            self._refuse(field, "must be an address such as 'https://api.example.com'.")
        parts = urlsplit(address)
        if "@" in parts.netloc:
            self._refuse(field, "must contain no user name and password; the key has its own setting.")
        if "?" in address or "#" in address:
            self._refuse(field, "must contain no query and no fragment; fixed parameters go into `extra`.")
        if not self._table.allow_private and not _may_be_public(host_of(address)):
            self._refuse(field, "is a private or reserved address. If it is intended, set allow_private = true.")
        return address

    def _key_place(self) -> tuple[str, str]:
        kind, _, name = self._table.key_at.partition(":")
        if kind not in ("query", "header") or (_NAME if kind == "query" else _HEADER_NAME).fullmatch(name) is None:
            self._refuse("key_at", "must be 'query:NAME' or 'header:NAME', such as 'header:x-api-key'.")
        if not self._table.key_prefix.isascii() or not self._table.key_prefix.isprintable():
            self._refuse("key_prefix", "must be plain text such as 'Bearer '.")
        return kind, name

    def _key(self, environ: Mapping[str, str], root: Path) -> Secret:
        table = self._table
        found = table.key.reveal()
        if not found and table.env:
            found = environ.get(table.env, "").strip()
            if not found:
                self._refuse("env", f"the variable {table.env} is not set; it should hold the key.")
        if not found and table.secret:
            try:
                found = (root / table.secret).read_text(encoding="utf-8").strip()
            except (OSError, ValueError) as error:
                self._refuse("secret", f"the file {table.secret} cannot be read ({type(error).__name__}).")
        if not found:
            self._refuse("key", "is missing. Write it there, or name a variable with `env` or a file with `secret`.")
        if re.search(r"[^\x21-\x7e]", found):
            self._refuse("key", "contains a blank, a line end or another character that no request may carry.")
        return Secret(found)

    def _parameter(self, field: str, text: str, *, bare: bool) -> Parameter | None:
        """`name=value`; a bare name means true. In JSON, values that look like true, false or a number become that
        type."""
        if not text:
            return None
        name, equals, value = text.partition("=")
        if _NAME.fullmatch(name) is None or not (equals or bare):
            self._refuse(field, "must be 'name' or 'name=value'." if bare else "must contain texts like 'name=value'.")
        if not equals:
            return name, True
        return name, _plain_value(value) if self._table.send == "json" else value

    def _demanded(self, field: str, *kinds: str) -> Where:
        found = self._where(field, *kinds)
        if found is None:
            self._refuse(field, f"is missing. {_allowed(kinds)}")
        return found

    def _where(self, field: str, *kinds: str) -> Where | None:
        text = getattr(self._table, field)
        if not text:
            return None
        where = _parse_where(text)
        if where is None or where.kind not in kinds:
            self._refuse(field, f"{text!r} is not understood here. {_allowed(kinds)}")
        return where

    def _listen(self) -> tuple[str, int] | None:
        text = self._table.callback_listen
        if not text:
            return None
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        try:
            ip_address(host)
            number = int(port)
        except ValueError:
            number = -1
        if not 0 < number < 65536:
            self._refuse("callback_listen", "must be an address and a port such as '0.0.0.0:8099'.")
        return host, number


def _parse_where(text: str) -> Where | None:
    if text in (STATUS, BODY, HEADERS):
        return Where(text)
    if text.startswith("header:"):
        name = text.removeprefix("header:")
        return Where(HEADER, (name,)) if _HEADER_NAME.fullmatch(name) else None
    path, *others = (tuple(one.strip().split(".")) for one in text.split("|"))
    fits = all(_STEP.fullmatch(step) for steps in (path, *others) for step in steps)
    return Where(JSON, path, tuple(others)) if fits else None


_EXAMPLES = {
    STATUS: "'http:status' (that of the response itself)",
    BODY: "'http:body' (the whole response)",
    HEADERS: "'http:headers' (those of the response itself)",
    HEADER: "a header such as 'header:x-cost'",
    JSON: "a path in the JSON such as 'data.html'",
}


def _allowed(kinds: tuple[str, ...]) -> str:
    return f"Write {' or '.join(_EXAMPLES[kind] for kind in kinds)}."


def _plain_value(text: str) -> object:
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return text
    return value if isinstance(value, bool | int | float) else text


def _may_be_public(host: str) -> bool:
    """False for a literal address that is not public, and for localhost. Other names are checked when they are
    resolved."""
    if host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        ip_address(host)
    except ValueError:
        return True
    return is_public(host)
