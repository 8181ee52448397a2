"""Where a bucket is: `s3://bucket/prefix?endpoint=https://...&region=...`, read and checked. No I/O here.

    endpoint    any S3-compatible service; without it AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or AWS itself
    region      without it AWS_REGION or AWS_DEFAULT_REGION
    path_style  true (as a rule) for endpoint/bucket/key; false when the endpoint's host already names the bucket
    allow_http  true sends pages unencrypted over the network; a loopback endpoint needs no permission

Keys never stand in the address, which is printed and logged: they come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN, or from the role of the machine or pod.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from ...errors import Misconfigured

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_OPTIONS = ("endpoint", "region", "path_style", "allow_http")
# The first that is set counts, as in Amazon's own tools.
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_YES_NO = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class BucketAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A place for objects. `endpoint` None is AWS; `path_style` None leaves it to the environment."""

    bucket: str
    prefix: str
    endpoint: str | None
    region: str | None
    path_style: bool | None
    plain_http: bool

    def __str__(self) -> str:
        place = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        return f"{place} at {self.endpoint}" if self.endpoint else place


def parse_address(address: str, environment: Mapping[str, str]) -> BucketAddress:
    """Read an address; what it leaves out comes from the environment. Raises Misconfigured, never printing a key."""
    try:
        parts = urlsplit(address)
        scheme, host, path, query = parts.scheme, parts.netloc, parts.path, parts.query
    except ValueError:
        raise Misconfigured("archive: that is no address. Write archive = 's3://bucket/prefix'.") from None
    if scheme != "s3" or parts.fragment:
        raise Misconfigured("archive: write an object store as 's3://bucket/prefix?endpoint=https://...'.")
    if "@" in host:
        raise Misconfigured(
            "archive: keys do not belong into the address, which is printed and logged. "
            "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment instead."
        )
    if not _BUCKET.fullmatch(host):
        raise Misconfigured(f"archive: {host!r} is no bucket name. Write archive = 's3://bucket/prefix'.")
    options = _options(query)
    endpoint = options.get("endpoint") or _first(environment, _ENDPOINT_VARIABLES)
    return BucketAddress(
        bucket=host,
        prefix=_prefix(path),
        endpoint=endpoint.rstrip("/") if endpoint else None,
        region=options.get("region") or _first(environment, _REGION_VARIABLES),
        path_style=_yes_no(options, "path_style"),
        plain_http=_plain_http(endpoint, _yes_no(options, "allow_http") or False) if endpoint else False,
    )


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS:
            near = difflib.get_close_matches(name, _OPTIONS, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"It may hold {', '.join(_OPTIONS)}."
            raise Misconfigured(f"archive: the address holds {name}=, which is unknown. {hint}")
    return options


def demand_keys(place: BucketAddress, environment: Mapping[str, str]) -> None:
    """A service of one's own knows no roles of machines: without keys nobody is asked for any. Raises Misconfigured."""
    if place.endpoint is None or place.endpoint.endswith(".amazonaws.com"):
        return
    if not (environment.get("AWS_ACCESS_KEY_ID") and environment.get("AWS_SECRET_ACCESS_KEY")):
        raise Misconfigured(
            f"archive = {place}: there are no keys for it. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)


def _yes_no(options: Mapping[str, str], name: str) -> bool | None:
    if name not in options:
        return None
    try:
        return _YES_NO[options[name].lower()]
    except KeyError:
        raise Misconfigured(f"archive: write {name}=true or {name}=false, not {options[name]!r}.") from None


def _prefix(path: str) -> str:
    prefix = unquote(path).strip("/")
    if prefix and (not prefix.isprintable() or any(part in ("", ".", "..") for part in prefix.split("/"))):
        raise Misconfigured(f"archive: {prefix!r} cannot begin the names of objects. Write 's3://bucket/some/prefix'.")
    return prefix


def _plain_http(endpoint: str, allowed: bool) -> bool:
    """True when the endpoint is asked without encryption, and may be."""
    try:
        parts = urlsplit(endpoint)
        host = parts.hostname or ""
        _ = parts.port  # raises when it is no number
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("http", "https"):
        raise Misconfigured("archive: the endpoint is no address. Write endpoint=https://host:port.")
    if parts.username is not None or parts.password is not None:
        raise Misconfigured("archive: the endpoint holds a user or password. Set AWS_ACCESS_KEY_ID and its secret.")
    if parts.scheme == "https":
        return False
    if not allowed and not _is_loopback(host):
        raise Misconfigured(
            f"archive: http://{host} would send every page unencrypted. Write endpoint=https://..., "
            f"or add allow_http=true to the address when the network is your own."
        )
    return True


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
