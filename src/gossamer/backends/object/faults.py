"""What the object store's client complains about, in our own errors. The only place that reads its messages.

The client tells most failures apart in its text alone: the S3 error code (`<Code>NoSuchBucket</Code>`) and the status.
"""

from __future__ import annotations

import re

from ...errors import BackendUnavailable, Misconfigured
from .address import BucketAddress

_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,64})</Code>")
_STATUS = re.compile(r"status code: ([0-9]{3})")

_KEYS = "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN, when the key is a temporary one)."
_WRONG_REGION = "The bucket lives in another region. Set region= in the address, or AWS_REGION."

# What only the user can put right, by S3 error code.
_REMEDIES = {
    "NoSuchBucket": "There is no such bucket. Create it, or correct archive = in gossamer.toml.",
    "InvalidBucketName": "The service refuses the bucket's name. Correct archive = in gossamer.toml.",
    "InvalidAccessKeyId": f"The service does not know the access key. {_KEYS}",
    "SignatureDoesNotMatch": f"The secret does not belong to the access key. {_KEYS}",
    "InvalidToken": f"The session token is not valid. {_KEYS}",
    "ExpiredToken": f"The session token has expired. {_KEYS}",
    "AccessDenied": "The key may not do this. It needs s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject.",
    "AllAccessDisabled": "The bucket is closed to everybody. Ask whoever owns it.",
    "PermanentRedirect": _WRONG_REGION,
    "AuthorizationHeaderMalformed": _WRONG_REGION,
    "RequestTimeTooSkewed": "The clock of this machine is wrong. Set it.",
}


def missing(error: Exception) -> bool:
    """True when the object is not there, but its bucket is."""
    return isinstance(error, FileNotFoundError) and _code(error) != "NoSuchBucket"


def beyond_end(error: Exception) -> bool:
    return _status(error) == "416"


def unavailable(error: Exception, place: BucketAddress) -> BackendUnavailable:
    """Any failure while work goes on. Also a refused key: pages wait for it to be put right, they are not buried."""
    remedy = _remedy(error)
    if remedy is not None:
        return BackendUnavailable(f"The archive {place} refused: {remedy}")
    status = _status(error)
    answer = f"answered {status}" if status else "does not answer"
    return BackendUnavailable(
        f"The archive {place} {answer}. Check the endpoint and that its service runs; "
        f"store.keep_pages = false in gossamer.toml crawls without an archive."
    )


def refused_at_start(error: Exception, place: BucketAddress) -> Misconfigured | BackendUnavailable:
    """The same failures before any work was done: what the user must put right is said as such."""
    remedy = _remedy(error)
    return unavailable(error, place) if remedy is None else Misconfigured(f"archive = {place}: {remedy}")


def _remedy(error: Exception) -> str | None:
    code = _code(error)
    if code in _REMEDIES:
        return _REMEDIES[code]
    if _status(error) in ("401", "403"):
        return f"The service refuses the access key. {_KEYS}"
    if _status(error) is None and "/latest/api/token" in str(error):  # it looked for a machine's role, found none
        return f"There is no access key. {_KEYS}"
    return None


def _code(error: Exception) -> str | None:
    found = _CODE.search(str(error))
    return found[1] if found else None


def _status(error: Exception) -> str | None:
    found = _STATUS.search(str(error))
    return found[1] if found else None
