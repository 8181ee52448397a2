"""Sign-in at the dashboard: a key becomes a cookie, and a cookie becomes a caller again, on every server of the
project.

What it does: the cookie holds the id of the key, when its holder signed in and was last seen, and an HMAC of these with
the stored digest of the key. Any replica can check it, and nothing is stored about signed-in people; a sign-out is
noted in the state for as long as a copy of the cookie could be valid. Revoking the key ends all its sign-ins at once.
How it fails: None for a cookie that is forged, too old, idle for too long, signed out, or whose key is no longer valid;
BackendUnavailable. How it recovers: the person signs in again.
"""

from __future__ import annotations

import hmac
import re
import secrets

import msgspec

from ...access.contract import StoredAnswer
from ..open import Project
from .keys import LOCAL, Caller, Token, caller_of, holder_of, is_active, secret_digest

RENEWED_EVERY = 60.0  # seconds: a new cookie with each response would only cost bytes
_COOKIE = re.compile(r"([0-9a-z]{1,16}\.\d{1,12}\.[0-9a-f]{16})\.(\d{1,12})\.([0-9a-f]{64})", re.ASCII)


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """A signed-in person. `id` identifies this sign-in; `csrf` is in each of their forms; `until` is when the sign-in
    expires."""

    id: str
    caller: Caller
    until: float
    csrf: str
    renewed: str | None = None  # the cookie that replaces the presented one


class SignIns:
    """Signs people in. `token` is accepted while there is no key."""

    def __init__(self, project: Project, token: Token | None) -> None:
        self._project = project
        self._token = token

    async def begin(self, text: str) -> tuple[Caller, str] | None:
        """The holder of a key or of the one-time token, and their cookie; None if the text is neither."""
        text = text.strip()
        digest = secret_digest(text)
        if self._token is not None and digest is not None and hmac.compare_digest(digest, self._token.digest):
            return self._token.caller, self._new_cookie(LOCAL, self._token.digest)
        caller = await caller_of(self._project, text)
        key = await self._project.state.keys.key(caller.id) if caller is not None else None
        if caller is None or key is None:
            return None
        return caller, self._new_cookie(key.id, key.digest)

    async def visitor(self, cookie: str) -> Visitor | None:
        """The person with this cookie; None if it is not valid, or no longer."""
        found = _COOKIE.fullmatch(cookie)
        if found is None:
            return None
        id, seen = found[1], int(found[2])
        key, since, _ = id.split(".")
        terms, now = self._project.settings.server, self._now()
        until = min(int(since) + terms.sign_in_limit.total_seconds(), seen + terms.sign_in_idle.total_seconds())
        holder = await self._holder(key) if now < until else None
        if holder is None:
            return None
        digest, caller = holder
        if not hmac.compare_digest(_cookie(id, digest, seen), cookie) or await self.has_ended(id):
            return None
        renewed = _cookie(id, digest, now) if now - seen >= RENEWED_EVERY else None
        return Visitor(id=id, caller=caller, until=until, csrf=_mac(digest, f"csrf {id}"), renewed=renewed)

    async def end(self, visitor: Visitor) -> None:
        """From now on no cookie of this sign-in is valid, on any server of the project."""
        lasting = self._project.settings.server.sign_in_limit.total_seconds()
        await self._project.state.answers.keep(_ended(visitor.id), StoredAnswer(digest="", status=303), lasting)

    async def has_ended(self, id: str) -> bool:
        return await self._project.state.answers.answer(_ended(id)) is not None

    async def _holder(self, id: str) -> tuple[str, Caller] | None:
        if self._token is not None and id == LOCAL:
            return self._token.digest, self._token.caller
        key = await self._project.state.keys.key(id)
        if key is None or not is_active(key, self._project.clock.now()):
            return None
        return key.digest, await holder_of(self._project, key)

    def _new_cookie(self, key: str, digest: str) -> str:
        now = self._now()
        return _cookie(f"{key}.{now}.{secrets.token_hex(8)}", digest, now)

    def _now(self) -> int:
        return int(self._project.clock.now())


def _cookie(id: str, digest: str, seen: int) -> str:
    said = f"{id}.{seen}"
    return f"{said}.{_mac(digest, f'signed in {said}')}"


def _ended(id: str) -> str:
    """The name under which the end of a sign-in is noted; no request of a client can have such a name."""
    return f"signed out {id}"


def _mac(digest: str, words: str) -> str:
    return hmac.digest(bytes.fromhex(digest), words.encode(), "sha256").hex()
