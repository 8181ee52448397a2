"""A bucket: its address `s3://bucket/prefix?endpoint=https://...&region=...`, a client for it, and the translation of
the client's errors.

    endpoint    any S3-compatible service; default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or AWS itself
    region      default: AWS_REGION or AWS_DEFAULT_REGION
    path_style  true (the default) for endpoint/bucket/key; false if the endpoint's host already names the bucket
    allow_http  true sends pages unencrypted over the network; a loopback endpoint needs no permission
    create      true makes the bucket of an archive where there is none; it is never made unasked

Keys are never in the address, which is printed and logged: they come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN, from the files named by AWS_ACCESS_KEY_ID_FILE and AWS_SECRET_ACCESS_KEY_FILE, or from the role of
the machine or pod.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from ...errors import BackendUnavailable, Misconfigured, MissingExtra, StoreRefused

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config, S3Store

CONNECT_WITHIN = timedelta(seconds=5)
ANSWER_WITHIN = timedelta(seconds=30)
# Short: longer outages are left to the caller, who can do something useful meanwhile.
RETRIES = 2
RETRY_WITHIN = timedelta(seconds=10)

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_OPTIONS = ("endpoint", "region", "path_style", "allow_http", "create")
# The first that is set counts, as in Amazon's own tools.
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_KEY_NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
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
    create: bool = False

    def __str__(self) -> str:
        place = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        return f"{place} at {self.endpoint}" if self.endpoint else place


def parse_address(address: str, environment: Mapping[str, str]) -> BucketAddress:
    """Read an address; the environment supplies what it leaves out. Raises Misconfigured, never printing a key."""
    try:
        parts = urlsplit(address)
        scheme, host, path, query = parts.scheme, parts.netloc, parts.path, parts.query
    except ValueError:
        raise Misconfigured("archive: this is not an address. Write archive = 's3://bucket/prefix'.") from None
    if scheme != "s3" or parts.fragment:
        raise Misconfigured("archive: write an object store as 's3://bucket/prefix?endpoint=https://...'.")
    if "@" in host:
        raise Misconfigured(
            "archive: keys do not belong in the address, which is printed and logged. "
            "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment instead."
        )
    if not _BUCKET.fullmatch(host):
        raise Misconfigured(f"archive: {host!r} is not a bucket name. Write archive = 's3://bucket/prefix'.")
    options = _options(query)
    endpoint = options.get("endpoint") or _first(environment, _ENDPOINT_VARIABLES)
    return BucketAddress(
        bucket=host,
        prefix=_prefix(path),
        endpoint=endpoint.rstrip("/") if endpoint else None,
        region=options.get("region") or _first(environment, _REGION_VARIABLES),
        path_style=_yes_no(options, "path_style"),
        plain_http=_plain_http(endpoint, _yes_no(options, "allow_http") or False) if endpoint else False,
        create=_yes_no(options, "create") or False,
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
    """Demand keys for a private endpoint, which has no machine roles. Raises Misconfigured."""
    if place.endpoint is None or place.endpoint.endswith(".amazonaws.com"):
        return
    if not all(environment.get(name) or environment.get(f"{name}_FILE") for name in _KEY_NAMES):
        raise Misconfigured(
            f"archive = {place}: there are no keys for it. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )


def keys_from_files(environment: Mapping[str, str]) -> dict[str, str]:
    """The keys in the files that AWS_ACCESS_KEY_ID_FILE and AWS_SECRET_ACCESS_KEY_FILE name, as orchestrators mount
    secrets. A key in the environment itself takes precedence. Raises Misconfigured."""
    found = {}
    for name in _KEY_NAMES:
        path = environment.get(f"{name}_FILE", "")
        if not path or environment.get(name):
            continue
        try:
            found[name.lower()] = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            raise Misconfigured(
                f"{name}_FILE names {path}, which cannot be read ({type(error).__name__}). Mount that file, or set "
                f"{name} itself."
            ) from None
    return found


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
    """True if the endpoint is used without encryption, and may be."""
    try:
        parts = urlsplit(endpoint)
        host = parts.hostname or ""
        _ = parts.port  # raises if it is not a number
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("http", "https"):
        raise Misconfigured("archive: the endpoint is not an address. Write endpoint=https://host:port.")
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


def connect(place: BucketAddress) -> S3Store:
    """A client for that place. It takes what the address leaves open (keys, token, role) from AWS_* itself."""
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ImportError as error:
        raise MissingExtra("An archive on S3 needs one more package: pip install 'gossamer[fleet]'.") from error
    config = cast("S3Config", keys_from_files(os.environ))
    if place.endpoint is not None:
        config["aws_endpoint_url_s3"] = place.endpoint  # overrides other endpoints in the environment
    if place.region is not None:
        config["region"] = place.region
    if place.path_style is not None:
        config["virtual_hosted_style_request"] = not place.path_style
    client: ClientConfig = {
        "allow_http": place.plain_http,
        "connect_timeout": CONNECT_WITHIN,
        "timeout": ANSWER_WITHIN,
    }
    retry: RetryConfig = {"max_retries": RETRIES, "retry_timeout": RETRY_WITHIN}
    try:
        return S3Store(
            place.bucket, prefix=place.prefix or None, config=config, client_options=client, retry_config=retry
        )
    except BaseError as error:
        raise refused_at_start(error, place) from error


async def make_bucket(place: BucketAddress) -> None:
    """Make the bucket; one that is there already is left alone. Raises StoreRefused, BackendUnavailable."""
    import aiohttp
    from obstore import sign
    from yarl import URL

    bare = msgspec.structs.replace(place, prefix="")
    # The client has no call for this, but signs it. Amazon wants the region in words, too, unless it is its first one.
    body = "" if place.region in (None, "us-east-1") else _LOCATED.format(region=place.region)
    within = aiohttp.ClientTimeout(ANSWER_WITHIN.total_seconds())
    try:
        url = URL(sign(connect(bare), "PUT", "", ANSWER_WITHIN), encoded=True)
        async with aiohttp.ClientSession(timeout=within) as session, session.put(url, data=body) as answer:
            if answer.status not in (200, 409):  # 409: another process was quicker, or the name is somebody else's
                told = (await answer.content.read(2000)).decode(errors="replace")
                raise OSError(f"status code: {answer.status} {told}")
    except (OSError, aiohttp.ClientError) as error:  # a time-out is an OSError, too
        raise refused_at_start(error, place) from error


_LOCATED = (
    '<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    "<LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
)


# -- translating the client's errors: the only place that reads its messages -------------------------------------

# The client distinguishes most failures only in its text: the S3 error code (`<Code>NoSuchBucket</Code>`) and the
# status.
_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,64})</Code>")
_STATUS = re.compile(r"status code: ([0-9]{3})")

_KEYS = "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN, when the key is a temporary one)."
_WRONG_REGION = "The bucket lives in another region. Set region= in the address, or AWS_REGION."

# What only the user can fix, by S3 error code.
_REMEDIES = {
    "NoSuchBucket": "There is no such bucket. Create it, or correct archive = in gossamer.toml.",
    "InvalidBucketName": "The service refuses the bucket's name. Correct archive = in gossamer.toml.",
    "InvalidAccessKeyId": f"The service does not know the access key. {_KEYS}",
    "SignatureDoesNotMatch": f"The secret does not belong to the access key. {_KEYS}",
    "InvalidToken": f"The session token is not valid. {_KEYS}",
    "ExpiredToken": f"The session token has expired. {_KEYS}",
    "AccessDenied": "The key may not do this. It needs s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject.",
    "AllAccessDisabled": "The bucket is closed to everybody. Ask its owner.",
    "PermanentRedirect": _WRONG_REGION,
    "AuthorizationHeaderMalformed": _WRONG_REGION,
    "RequestTimeTooSkewed": "The clock of this machine is wrong. Set it.",
}


def missing(error: Exception) -> bool:
    """True if the object does not exist, but its bucket does."""
    return isinstance(error, FileNotFoundError) and _code(error) != "NoSuchBucket"


def without_bucket(error: Exception) -> bool:
    return _code(error) == "NoSuchBucket"


def beyond_end(error: Exception) -> bool:
    return _status(error) == "416"


def unavailable(error: Exception, place: BucketAddress) -> BackendUnavailable:
    """Any failure during work, including a refused key: pages wait until it is corrected, they are not buried."""
    remedy = _remedy(error)
    if remedy is not None:
        return BackendUnavailable(f"The archive {place} refused: {remedy}")
    status = _status(error)
    answer = f"answered {status}" if status else "does not answer"
    return BackendUnavailable(
        f"The archive {place} {answer}. Check the endpoint and that its service runs; "
        f"store.keep_pages = false in gossamer.toml crawls without an archive."
    )


def refused_at_start(error: Exception, place: BucketAddress) -> StoreRefused | BackendUnavailable:
    """The same failures before any work was done: what the user must fix is reported as StoreRefused."""
    remedy = _remedy(error)
    return unavailable(error, place) if remedy is None else StoreRefused(f"archive = {place}: {remedy}")


def _remedy(error: Exception) -> str | None:
    code = _code(error)
    if code in _REMEDIES:
        return _REMEDIES[code]
    if _status(error) in ("401", "403"):
        return f"The service refuses the access key. {_KEYS}"
    if _status(error) is None and "/latest/api/token" in str(error):  # it found no role of a machine
        return f"There is no access key. {_KEYS}"
    return None


def _code(error: Exception) -> str | None:
    found = _CODE.search(str(error))
    return found[1] if found else None


def _status(error: Exception) -> str | None:
    found = _STATUS.search(str(error))
    return found[1] if found else None
