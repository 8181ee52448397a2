"""Gateways: one address, where the user name selects the proxy behind it.

The name is made from a template. {user} is the name of the account, {session} an id that stands for one proxy,
{country} where the proxy should be. The part in brackets is left out if no country is requested:

    {user}-session-{session}[-country-{country}]

How it fails: Misconfigured, when the pool is opened. A lasting session has the same id in every worker; it is derived
from the names of project, pool and session. After a ban it gets another one, for all workers.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Mapping
from hashlib import blake2b
from pathlib import Path

import msgspec

from ...errors import Misconfigured
from ...model.route import Proxy
from ...settings import ProxyPool
from .sources import file_lines, parse_proxy, variable

TASK, SITE, KEY = SESSIONS = ("task", "site", "key")
PLACEHOLDERS = ("user", "session", "country")
ID_LENGTH = 12
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_COUNTRY = re.compile(r"[A-Za-z0-9_,-]{1,40}")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_BRACES = re.compile(r"\{([^{}]*)\}")


class Gateway(msgspec.Struct, frozen=True, kw_only=True):
    """An opened gateway. `door` is its address without a user name."""

    door: Proxy
    template: str
    user: str
    password: str
    session: str
    country: str

    @property
    def has_sessions(self) -> bool:
        return "{session}" in self.template

    def proxy(self, session: str, country: str | None) -> Proxy:
        """The proxy behind the gateway for a session id. Raises Misconfigured for a country that cannot be part of a
        user name."""
        asked = country or self.country
        if asked and not _COUNTRY.fullmatch(asked):
            raise Misconfigured(
                f"Pool {self.door.pool}: a country is written in letters, like 'de'; {asked[:40]!r} is not one."
            )
        name = f"{self.door.address}#{session}" if self.has_sessions else self.door.address
        return msgspec.structs.replace(
            self.door, name=name, username=self._username(session, asked), password=self.password
        )

    def _username(self, session: str, country: str) -> str:
        text = _BRACKETS.sub(lambda part: part[1] if country or "{country}" not in part[1] else "", self.template)
        # All at once: an account's name may contain braces.
        values = {"user": self.user, "session": session, "country": country}
        return _BRACES.sub(lambda found: values[found[1]], text)


def open_gateway(pool: str, terms: ProxyPool, root: Path, environ: Mapping[str, str]) -> Gateway:
    """Read the settings of a gateway. Its user and password may also be in a variable or a secret file, as
    `user:password`. Raises Misconfigured."""
    if terms.urls or terms.file:
        raise Misconfigured(f"Pool {pool} has a gateway and a list of proxies. Split it into two pools.")
    if terms.session not in SESSIONS:
        raise Misconfigured(f"proxies.{pool}.session must be 'task', 'site' or 'key'.")
    door = parse_proxy(terms.gateway, pool=pool, where=f"proxies.{pool}.gateway", allow_private=terms.allow_private)
    if door.username or door.password:
        raise Misconfigured(
            f"proxies.{pool}.gateway must not contain credentials. Set proxies.{pool}.user and password; they are "
            "never shown."
        )
    user, password = _account(pool, terms, root, environ)
    template = terms.username or "{user}"
    _check_template(pool, template, has_user=bool(user), country=terms.country)
    return Gateway(
        door=msgspec.structs.replace(door, name=door.address),
        template=template,
        user=user,
        password=password,
        session=terms.session,
        country=terms.country,
    )


def lasting_id(project: str, pool: str, session: str, generation: int, span: int = 0, retry: int = 0) -> str:
    """The id of a lasting session: looks random, and is the same in every worker."""
    words = "\0".join((project, pool, session, str(generation), str(span), str(retry)))
    digest = blake2b(words.encode("utf-8", "surrogatepass"), digest_size=16, person=b"gossamer-session").digest()
    return _spelled(int.from_bytes(digest, "big"))


def another_id(project: str, pool: str, session: str, generation: int, span: int, avoid: Collection[str]) -> str:
    """Like `lasting_id`, but one that the page has not tried in vain."""
    for retry in range(len(avoid) + 1):
        found = lasting_id(project, pool, session, generation, span, retry)
        if found not in avoid:
            return found
    return fresh_id()


def fresh_id() -> str:
    """An id that was never used."""
    return _spelled(secrets.randbits(128))


def _spelled(number: int) -> str:
    text = ""
    for _ in range(ID_LENGTH):
        number, place = divmod(number, len(_LETTERS))
        text += _LETTERS[place]
    return text


def _account(pool: str, terms: ProxyPool, root: Path, environ: Mapping[str, str]) -> tuple[str, str]:
    written = ""
    if terms.secret:
        written = next((line.text for line in file_lines(root / terms.secret, pool, "secret")), "")
    elif terms.env:
        written = variable(terms.env, pool, environ).strip()
    if not (terms.secret or terms.env):
        return terms.user.reveal(), terms.password.reveal()
    named, colon, secret = written.partition(":")
    if not colon:
        source = "the secret file" if terms.secret else f"the variable {terms.env}"
        raise Misconfigured(f"Pool {pool}: {source} of a gateway holds user:password, and there is no colon in it.")
    return named, secret


def _check_template(pool: str, template: str, *, has_user: bool, country: str) -> None:
    key = f"proxies.{pool}.username"
    known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    for found in _BRACES.finditer(template):
        if found[1] not in PLACEHOLDERS:
            raise Misconfigured(f"{key}: {{{found[1]}}} is not known. Known are {known}.")
    outside = _BRACKETS.sub("", template)
    if re.search(r"[{}]", _BRACES.sub("", template)) or re.search(r"[\[\]]", outside):
        raise Misconfigured(f"{key}: a brace or bracket is not closed. Write {known} and [-country-{{country}}].")
    if "{user}" in template and not has_user and template != "{user}":
        raise Misconfigured(f"{key} names {{user}}, but there is none. Set proxies.{pool}.user and password.")
    if "{country}" in outside and not country:
        raise Misconfigured(
            f"{key} names {{country}}, but no country is set. Set proxies.{pool}.country, or put that part into "
            "brackets, [-country-{country}]: it is left out for pages without a country."
        )
