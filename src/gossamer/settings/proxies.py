"""[proxies.NAME]: a pool of exits, listed one by one or behind a gateway."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ..units import Secret


class ProxyPool(msgspec.Struct, frozen=True, kw_only=True):
    """Where its exits come from: any of `urls`, `file`, `env` and `secret`, or `gateway`. Secrets never print.

    A gateway's user and password may also come from `env` or `secret`, as `user:password`.
    """

    kind: str = "datacenter"  # or "residential", which is rotated less often
    urls: tuple[Secret, ...] = ()  # http://user:password@host:port, https://..., socks5://...
    file: str = ""  # one address in each line, from the project's folder
    env: str = ""  # name of a variable with addresses between commas, blanks or line ends
    secret: str = ""  # a file as in /run/secrets, in the form of `file`
    gateway: str = ""  # http://gate.example:8000: one address, the user name chooses the exit
    username: str = ""  # its template: "{user}-session-{session}[-country-{country}]"; [...] only with a country
    user: Secret = Secret("")
    password: Secret = Secret("")
    session: str = "task"  # a session of the gateway is for one "task", one "site" or one "key"
    country: str = ""  # for pages that ask for none
    stay: timedelta | None = None  # how long a site keeps its exit; none: 10 minutes if residential, else not at all
    cooldown: timedelta = timedelta(minutes=1)  # of an exit after its first ban; doubles with each further one
    max_cooldown: timedelta = timedelta(hours=1)
    allow_private: bool = False  # may its proxies be in a private network?
