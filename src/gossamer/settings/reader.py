"""Reads the settings, and records where each came from. Unknown keys are errors with a suggestion."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from datetime import date
from functools import cache
from ipaddress import ip_network
from itertools import chain
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import unquote

import msgspec

from ..errors import Misconfigured, UnknownSetting
from ..model.outcome import Expectations
from ..model.run_log import LEVELS
from ..model.secret_text import ENVIRONMENT as SECRET_PREFIX
from ..model.task import MAX_PRIORITY
from ..model.windows import parse_windows
from ..units import Rate, Secret, Size, parse_duration, parse_rate, parse_size, visible
from .alert_tables import AlertTable, ChannelTable, alert_faults
from .output_tables import OutputTable, output_faults
from .quality_tables import heal_faults
from .tables import Domain, Managed, ProxyPool, RouteTable, ScheduleTable, Settings, TransportTable
from .trust import TRUST, demand_trust

FILE_NAME = "gossamer.toml"
SCRAPY_FILE = "scrapy.cfg"
ENV_PREFIX = "GOSSAMER_"
MOST_OF_A_VALUE = 64 * 1024  # characters
FROM_FILE = "_file"  # GOSSAMER_RECORDS_FILE names a file that holds the value, the way orchestrators provide secrets
COMMAND_LINE = "command line"
# Families of named tables: [domains."shop.example"]. The word stands for the name in documentation.
NAMED_TABLES: dict[str, tuple[str, type[msgspec.Struct]]] = {
    "domains": ("domain", Domain),
    "proxies": ("pool", ProxyPool),
    "routes": ("route", RouteTable),
    "managed": ("vendor", Managed),
    "transports": ("transport", TransportTable),
    "schedules": ("schedule", ScheduleTable),
    "alerts": ("alert", AlertTable),
    "channels": ("channel", ChannelTable),
    "outputs": ("output", OutputTable),
}


def _decode(kind: type, value: Any) -> Any:
    if isinstance(value, kind):
        return value
    if kind is Rate and isinstance(value, str):
        return parse_rate(value)
    if kind is Size and isinstance(value, str | int):
        return parse_size(str(value))
    if kind is Secret:
        if not isinstance(value, str):
            raise ValueError("write it as a text, in quotes")  # the message must not repeat the value
        return Secret(value)
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise ValueError(f"expected {kind.__name__.lower()}, got {value!r}")


def find_file(start: Path, name: str = FILE_NAME) -> Path | None:
    """The nearest gossamer.toml, or file of that name, in `start` or a folder above it."""
    for folder in (start, *start.parents):
        candidate = folder / name
        if candidate.is_file():
            return candidate
    return None


def load(
    *,
    start: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Read the settings as seen from the folder `start`. `flags` are dotted keys. Raises Misconfigured, also for a file
    that another user could have written."""
    here = (start or Path.cwd()).resolve()
    environ = os.environ if environ is None else environ
    file = find_file(here)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    if file is not None:
        demand_trust(file, file.parent)
        try:
            table = tomllib.loads(file.read_text(encoding="utf-8-sig"))  # Windows editors write a BOM
        except (OSError, ValueError) as error:
            raise Misconfigured(f"{file} cannot be read: {error}. Fix that line and try again.") from error
        for key, value in _flatten(table):
            _put(values, key, value, origins, str(file))
    for name, text in environ.items():
        if name.startswith(ENV_PREFIX) and name != TRUST and not name.startswith(SECRET_PREFIX):
            key = name.removeprefix(ENV_PREFIX).lower().replace("__", ".")
            if key not in _kinds_beside(key) and key.removesuffix(FROM_FILE) in _kinds_beside(
                key.removesuffix(FROM_FILE)
            ):
                key, text = key.removesuffix(FROM_FILE), _read_secret(name, text)
            _put(values, key, _from_text(key, text), origins, name)
    for key, value in (flags or {}).items():
        if value is not None:
            _put(values, key, value, origins, COMMAND_LINE)
    root = file.parent if file else here
    if file is None and (foreign := find_file(here, SCRAPY_FILE)) is not None:
        demand_trust(foreign, foreign.parent)
        root = foreign.parent  # a Scrapy project needs no gossamer.toml
    return _build(values, origins, root)


def _read_secret(name: str, path: str) -> str:
    """Read the file that a variable names. Its content is never shown."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            return file.read(MOST_OF_A_VALUE).strip()
    except (OSError, UnicodeError) as error:
        raise Misconfigured(
            f"{name} names {path}, which cannot be read ({type(error).__name__}). Mount that file, or set "
            f"{name.removesuffix(FROM_FILE.upper())} itself."
        ) from None


def _build(values: dict[str, Any], origins: dict[str, str], root: Path) -> Settings:
    try:
        settings = msgspec.convert(values, Settings, dec_hook=_decode, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        key = _key_of(str(error), values)
        where = f" (set in {origins[key]})" if key in origins else ""
        raise Misconfigured(f"Setting {key or '?'}{where}: {_in_words(str(error))}{_written(key, error)}") from error
    settings = msgspec.structs.replace(settings, root=root, origins=origins)
    check_settings(settings)
    return settings


def check_settings(settings: Settings) -> None:
    """Raises Misconfigured for values that no setting may have."""

    def demand(holds: bool, key: str, message: str) -> None:
        if not holds:
            where = settings.origins.get(key, "default")
            raise Misconfigured(f"Setting {key} ({where}): {message}")

    for role in ("state", "records", "archive"):
        address = unquote(getattr(settings, role))
        demand("\0" not in address and address.isprintable(), role, "cannot be the name of a file or a server.")
    demand(abs(settings.crawl.priority) <= MAX_PRIORITY, "crawl.priority", f"must be at most {MAX_PRIORITY:,}.")
    demand(settings.crawl.concurrency >= 1, "crawl.concurrency", "must be 1 or more.")
    demand(settings.crawl.parse_timeout.total_seconds() > 0, "crawl.parse_timeout", "must be more than 0.")
    demand((settings.crawl.depth or 0) >= 0, "crawl.depth", "must be 0 or more; none means no limit.")
    for name in ("limit", "site_concurrency", "max_queued", "max_urls_per_site", "max_urls_per_pattern"):
        bound = getattr(settings.crawl, name)
        demand(bound is None or bound >= 1, f"crawl.{name}", "must be 1 or more; none means no limit.")
    demand(settings.politeness.burst >= 1, "politeness.burst", "must be 1 or more.")
    per_site = settings.politeness.concurrency
    demand(per_site is None or per_site >= 1, "politeness.concurrency", "must be 1 or more.")
    demand(settings.retry.max_attempts >= 1, "retry.max_attempts", "must be 1 or more.")
    demand(settings.sessions.login_tries >= 1, "sessions.login_tries", "must be 1 or more.")
    demand(settings.lease.max_deliveries >= 1, "lease.max_deliveries", "must be 1 or more.")
    demand(settings.lease.duration.total_seconds() >= 1, "lease.duration", "must be 1s or more.")
    for name in ("browsers", "contexts", "recycle_pages"):
        demand(getattr(settings.browser, name) >= 1, f"browser.{name}", "must be 1 or more.")
    demand(settings.fetch.max_body.bytes >= 1, "fetch.max_body", "must be 1 byte or more.")
    demand(settings.fetch.max_redirects >= 0, "fetch.max_redirects", "must be 0 or more.")
    demand(settings.fetch.user_agent.isprintable(), "fetch.user_agent", "must be a single line of text.")
    for name in ("connect_timeout", "read_timeout", "total_timeout"):
        demand(getattr(settings.fetch, name).total_seconds() > 0, f"fetch.{name}", "must be more than 0.")
    demand(settings.files.max_size.bytes >= 1, "files.max_size", "must be 1 byte or more.")
    demand(settings.files.timeout.total_seconds() > 0, "files.timeout", "must be more than 0.")
    for key, blocks in (
        ("fetch.deny", settings.fetch.deny),
        ("server.trusted_proxies", settings.server.trusted_proxies),
    ):
        for block in blocks:
            try:
                ip_network(block)
            except ValueError as error:
                demand(False, key, f"{error}. Write networks: 203.0.113.0/24.")
    keep = settings.store.keep_runs
    demand(keep is None or keep >= 1, "store.keep_runs", "must be 1 or more; none keeps all of them.")
    demand(1 <= settings.store.compression <= 19, "store.compression", "must be between 1 and 19.")
    demand(0 < settings.otel.sample <= 1, "otel.sample", "must be a share between 0 and 1: 0.01.")
    is_address = settings.otel.endpoint.startswith(("http://", "https://"))
    demand(is_address, "otel.endpoint", "must be an address like http://127.0.0.1:4318.")
    for key, url in (("search.url", settings.search.url), ("model.url", settings.model.url)):
        demand(
            not url or url.startswith(("http://", "https://")), key, "must be an address like https://api.example/v1."
        )
    demand(bool(settings.model.name) or not settings.model.url, "model.name", "must say which model is meant.")
    demand(0 <= settings.monitor.domains <= 1000, "monitor.domains", "must be between 0 and 1000.")
    quality = settings.quality
    for name in ("minimum", "usual"):
        share = getattr(quality, name)
        demand(share is None or 0 < share <= 1, f"quality.{name}", "must be a share between 0 and 1: 0.8.")
    demand(quality.window >= 20, "quality.window", "must be 20 or more.")
    demand(quality.price_jump is None or quality.price_jump > 1, "quality.price_jump", "must be more than 1.")
    demand(quality.rating_max > 0, "quality.rating_max", "must be more than 0.")
    wanted = msgspec.structs.asdict(settings.expect)
    for name, value in wanted.items():
        fault = Expectations(**{name: value}).fault()
        demand(not fault, f"expect.{name}", f"{fault}.")
    demand(settings.crawl.dedup in ("exact", "bloom"), "crawl.dedup", "must be 'exact' or 'bloom'.")
    demand(0 < settings.crawl.dedup_error < 0.5, "crawl.dedup_error", "must be between 0 and 0.5.")
    demand(settings.crawl.dedup_expected >= 1, "crawl.dedup_expected", "must be 1 or more.")
    demand(settings.retention.every.total_seconds() >= 60, "retention.every", "must be 1m or more.")
    for name in ("attempts", "pages", "jobs", "dead", "audit"):
        age = getattr(settings.retention, name)
        demand(age is None or age.total_seconds() >= 3600, f"retention.{name}", "must be 1h or more; none keeps all.")
    copies = settings.retention.copies
    demand(copies is None or copies >= 1, "retention.copies", "must be 1 or more; none keeps all.")
    for key, level in {"level": settings.log.level, **settings.log.levels}.items():
        where = "log.level" if key == "level" else "log.levels"
        demand(level in LEVELS, where, f"must be {', '.join(LEVELS[:-1])} or {LEVELS[-1]}, not {visible(level)}.")
    demand(settings.scaling.look.total_seconds() >= 0.1, "scaling.look", "must be 100ms or more.")
    demand(settings.fleet.shards is None or 1 <= settings.fleet.shards <= 1024, "fleet.shards", "must be 1 to 1024.")
    key = settings.fleet.key.reveal()
    demand(not key or len(key) >= 16, "fleet.key", "must be 16 characters or more; `openssl rand -hex 32` makes one.")
    demand(
        re.fullmatch(r"[A-Za-z0-9_.-]{0,40}", settings.project) is not None,
        "project",
        "must be at most 40 letters, digits, dots, dashes and underscores.",
    )
    demand(settings.urls.trailing_slash in ("keep", "strip"), "urls.trailing_slash", "must be 'keep' or 'strip'.")
    tables = (alert_faults(settings.alerts, settings.channels), output_faults(settings.outputs))
    for key, fault in chain(*tables, heal_faults(settings.heal)):
        raise Misconfigured(f"Setting {key} ({settings.origins.get(key, FILE_NAME)}): {fault}")
    for name, domain in settings.domains.items():
        if domain.windows is not None:
            try:
                parse_windows(domain.windows)
            except Misconfigured as error:
                demand(False, f"domains.{name}.windows", str(error))


def _flatten(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for name, value in table.items():
        key = f"{prefix}{name}"
        if key in NAMED_TABLES and isinstance(value, dict):
            pairs.extend((f"{key}.{own}", terms) for own, terms in value.items())
        elif isinstance(value, dict) and key not in _kinds_beside(key):
            pairs.extend(_flatten(value, f"{key}."))
        else:
            pairs.append((key, value))
    return pairs


def known_keys() -> dict[str, Any]:
    """Every dotted setting with its type; `domains.<domain>.x` stands for that setting of any domain."""
    return {key: kind for name in _tables() for key, kind in _keys_in(name).items()}


def _kinds_beside(key: str) -> dict[str, Any]:
    """The settings of the key's table with their types: a command reads few tables, and types are slow to read."""
    name = key.partition(".")[0]
    return _keys_in(name) if name in _tables() else {}


@cache
def _tables() -> dict[str, Any]:
    return {name: kind for name, kind in get_type_hints(Settings).items() if name not in ("root", "origins")}


@cache
def _keys_in(name: str) -> dict[str, Any]:
    kind = _tables()[name]
    if name in NAMED_TABLES:
        word, table = NAMED_TABLES[name]
        hints = get_type_hints(table)
        return {f"{name}.<{word}>.{key}": hints[field] for field, key in keys_of(table)}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {f"{name}.{key}": hint for key, hint in get_type_hints(kind).items()}
    return {name: kind}


def keys_of(table: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """The fields of a table, each with its key in gossamer.toml, which may be a reserved word of Python."""
    return list(zip(table.__struct_fields__, table.__struct_encode_fields__, strict=True))


def _put(values: dict[str, Any], key: str, value: Any, origins: dict[str, str], origin: str) -> None:
    """Set a dotted key; raise if it does not exist."""
    family, _, own = key.partition(".")
    if family in NAMED_TABLES and own:
        word, table = NAMED_TABLES[family]
        if not isinstance(value, dict):
            fields = ", ".join(table.__struct_fields__[:3])
            raise Misconfigured(f'{origin}: write a table: [{family}."{own}"] with {fields} ...')
        for name in value:
            if (
                word == "domain"
                and isinstance(value[name], dict)
                and f"{family}.<{word}>.{name}" not in _keys_in(family)
            ):
                whole = _without_quotes(own, value)
                raise Misconfigured(f'{origin}: a name with dots needs quotes: write [{family}."{whole}"].')
            _demand_known(f"{family}.<{word}>.{name}", origin)
        values.setdefault(family, {})[own] = {
            name: _read_value(f"{family}.<{word}>.{name}", _none(given), origin, f"{family}.{own}.{name}")
            for name, given in value.items()
        }
        origins.update({f"{family}.{own}.{name}": origin for name in value})
        return
    _demand_known(key, origin)
    target = values
    *path, last = key.split(".")
    for name in path:
        target = target.setdefault(name, {})
    target[last] = _read_value(key, _none(value), origin, key)
    origins[key] = origin


def _without_quotes(name: str, table: Mapping[str, Any]) -> str:
    """The domain that was meant where TOML has read its dots as tables in tables."""
    inner = next(((own, value) for own, value in table.items() if isinstance(value, dict)), None)
    return name if inner is None else _without_quotes(f"{name}.{inner[0]}", inner[1])


def value_of(key: str, text: str, name: str) -> Any:  # Any: each setting has its own type
    """The value of a known `key`, which messages call `name`, from a text as in an environment variable. Raises
    Misconfigured."""
    value = _read_value(key, _none(_from_text(key, text)), "set by hand", name)
    try:
        return msgspec.convert(value, _kinds_beside(key)[key], dec_hook=_decode, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise Misconfigured(f"Setting {name}: {_in_words(str(error))}{_written(key, error)}") from error


def _read_value(key: str, value: Any, origin: str, name: str) -> Any:
    """The value of a known `key`, which messages call `name`. Durations are read here, because msgspec's notation is
    not ours. TOML dates become texts: their zone is decided elsewhere."""
    if isinstance(value, date):
        return value.isoformat()
    if "timedelta" in str(_kinds_beside(key)[key]) and isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError as error:
            raise Misconfigured(f"Setting {name} (set in {origin}): {error}.") from error
    return value


def _none(value: Any) -> Any:
    """`"none"` in TOML or the environment means: no limit."""
    return None if isinstance(value, str) and value.lower() == "none" else value


def _demand_known(key: str, origin: str) -> None:
    if key in _kinds_beside(key):
        return
    keys = known_keys()
    last = key.rpartition(".")[2]
    # One underscore for two: GOSSAMER_CRAWL_LIMIT.
    joined = [one for one in keys if one.replace(".", "_") == key.replace(".", "_")]
    elsewhere = [one for one in keys if one.rpartition(".")[2] == last and "<" not in one] if "<" not in key else []
    near = joined or elsewhere[:3] or difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
    spelled = _in_environment if origin.startswith(ENV_PREFIX) else str
    hint = f" Did you mean {' or '.join(map(spelled, near))}?" if near else " `gossamer settings` lists all of them."
    if last in near and "." in key and spelled is str:
        hint += f" Then write {last} above the first [table] of the file."
    raise UnknownSetting(f"{origin}: there is no setting {key!r}.{hint}")


_BOOLEANS = {"yes": True, "on": True, "no": False, "off": False}


def _in_environment(key: str) -> str:
    return ENV_PREFIX + key.upper().replace(".", "__")


def _from_text(key: str, text: str) -> Any:
    kind = _kinds_beside(key).get(key)
    if "bool" in str(kind) and text.strip().lower() in _BOOLEANS:
        return _BOOLEANS[text.strip().lower()]
    if kind is not None and "tuple" in str(kind):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


_WORDS = {"`int": "`a whole number", "`str": "`a text", "`bool": "`true or false", "`array": "`a list"}


def _in_words(message: str) -> str:
    """Rephrase a message of msgspec for people who write TOML: without its path, its quotes and its type names."""
    text = re.sub(r" - at `[^`]*`$", "", message)
    for name, word in _WORDS.items():
        text = text.replace(name, word)
    return text.replace(" | null", " or none").replace("`", "").removesuffix(".") + "."


def _key_of(message: str, values: Mapping[str, Any]) -> str:
    """The dotted key that msgspec complains about. msgspec does not name the table of a family; we search for it."""
    match = re.search(r"`\$\.([\w.\[\]]+)`", message)
    key = match[1] if match else ""
    family, dots, rest = key.partition("[...].")
    if not dots or family not in NAMED_TABLES:
        return key
    for name, table in values[family].items():
        try:
            msgspec.convert(table, NAMED_TABLES[family][1], dec_hook=_decode, strict=False)
        except (msgspec.ValidationError, ValueError):
            return f"{family}.{name}.{rest}"
    return key


# Texts that people may write as numbers.
_EXAMPLES = {"every": "6h", "cron": "0 3 * * *", "at": "2027-01-31T12:00", "windows": "22:00-06:00", "rate": "5/s"}


def _written(key: str, error: Exception) -> str:
    """What to write instead, if a text was expected and its quotes are missing."""
    name = key.rpartition(".")[2]
    if name in _EXAMPLES and str(error).lower().startswith("expected"):
        return f' Write it like {name} = "{_EXAMPLES[name]}".'
    if str(error).startswith("Expected `str`, got `null`"):
        return ' "none" removes a limit, but this is not a limit: docs/settings.md says what it takes.'
    if str(error).startswith("Expected `array`, got `str`"):
        return f' Write it like {name} = ["...", "..."].'
    return " Write it in quotes." if "Expected `str" in str(error) else ""
