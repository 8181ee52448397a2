"""HTTP logins (RFC 7617 basic, RFC 7616 digest).

A login is first sent as basic. A site that answers 401 and asks for digest gets digest, now and from then on.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64encode
from collections import OrderedDict
from hashlib import md5, sha256

from ..model.page import Headers
from ..model.url import authority_of, origin_of

_REMEMBERED = 1000  # origins
_HASHES = {"sha-256": sha256, "md5": md5}  # the better one first
_SCHEME = re.compile(r"(?:^|,)\s*digest\s+", re.IGNORECASE)
_PARAMETER = re.compile(r'\s*([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))\s*(?:,|$)')


class _Challenge:
    """What a site asked for. `count` is how often its nonce was used."""

    __slots__ = ("algorithm", "asked", "count", "session")

    def __init__(self, asked: dict[str, str]) -> None:
        name = asked.get("algorithm", "MD5").lower()
        self.session = name.endswith("-sess")
        self.algorithm = name.removesuffix("-sess")
        self.asked = asked
        self.count = 0

    @property
    def is_known(self) -> bool:
        offers = [one.strip().lower() for one in self.asked.get("qop", "auth").split(",")]
        return self.algorithm in _HASHES and "nonce" in self.asked and "auth" in offers


class Logins:
    """The login schemes that origins asked for, as far as known."""

    def __init__(self) -> None:
        self._challenges: OrderedDict[str, _Challenge] = OrderedDict()

    def authorization(self, auth: tuple[str, str], method: str, url: str) -> str:
        """The Authorization header for a request to `url`."""
        challenge = self._challenges.get(origin_of(url))
        if challenge is None:
            return "Basic " + b64encode(":".join(auth).encode()).decode("ascii")
        return _digest(challenge, auth, method, url)

    def heed(self, url: str, headers: Headers) -> bool:
        """Note what the 401 response to a request for `url` asks for. False if it asks for no scheme that we
        support."""
        found = [one for one in map(_Challenge, _challenges_in(headers)) if one.is_known]
        if not found:
            return False
        origin = origin_of(url)
        self._challenges[origin] = min(found, key=lambda one: list(_HASHES).index(one.algorithm))
        self._challenges.move_to_end(origin)
        while len(self._challenges) > _REMEMBERED:
            self._challenges.popitem(last=False)
        return True


def _digest(challenge: _Challenge, auth: tuple[str, str], method: str, url: str) -> str:
    asked, (user, password) = challenge.asked, auth
    digest = _HASHES[challenge.algorithm]

    def hashed(*parts: str) -> str:
        return digest(":".join(parts).encode()).hexdigest()

    uri = url.partition("#")[0].partition("://")[2][len(authority_of(url)) :] or "/"
    uri = uri if uri.startswith("/") else f"/{uri}"
    challenge.count += 1
    realm, nonce, count, own = asked.get("realm", ""), asked["nonce"], f"{challenge.count:08x}", secrets.token_hex(8)
    secret = hashed(user, realm, password)
    if challenge.session:
        secret = hashed(secret, nonce, own)
    fields = {"username": _quoted(user), "realm": _quoted(realm), "nonce": _quoted(nonce), "uri": _quoted(uri)}
    if "qop" in asked:
        answer = hashed(secret, nonce, count, own, "auth", hashed(method, uri))
        fields |= {"qop": "auth", "nc": count, "cnonce": _quoted(own)}
    else:
        answer = hashed(secret, nonce, hashed(method, uri))
    fields["response"] = _quoted(answer)
    if "algorithm" in asked:
        fields["algorithm"] = asked["algorithm"]
    if "opaque" in asked:
        fields["opaque"] = _quoted(asked["opaque"])
    return "Digest " + ", ".join(f"{name}={value}" for name, value in fields.items())


def _challenges_in(headers: Headers) -> list[dict[str, str]]:
    found = []
    for text in headers.getall("www-authenticate"):
        for scheme in _SCHEME.finditer(text[:4096]):
            place, asked = scheme.end(), {}
            while (one := _PARAMETER.match(text, place)) is not None:
                name, quoted, plain = one.groups()
                asked[name.lower()] = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain
                place = one.end()
            found.append(asked)
    return found


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
