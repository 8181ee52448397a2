"""Every error that Gossamer raises on purpose. This file holds the tree; the code that handles an error is elsewhere.

    GossamerError
    ├── Misconfigured          the user must change something; nothing was tried
    │   ├── UnknownSetting     a key that does not exist, with a suggestion
    │   ├── SpiderNotFound     no spider of that name, or its file does not load
    │   ├── NotThere           what was asked for does not exist, or is not the caller's
    │   ├── BadState           a state or records file that is not ours, or newer than this version
    │   ├── StoreRefused       a store answers and refuses us: login, rights, version (backends/open.py)
    │   └── MissingExtra       an optional dependency; the message names the pip command
    ├── Transient              the same call may succeed later
    │   ├── BackendUnavailable the state, record store or archive does not answer (or its disk is full)
    │   ├── FrontierFull       the queue has reached its bound; slow down
    │   ├── SourceFailed       the URLs of a schedule could not be read: no such file, an unreachable sitemap
    │   └── FetchFailed        the network or the server failed; may be tried again
    │       ├── ConnectFailed (HostUnroutable), DnsFailed, TimedOut (ConnectTimedOut)
    │       ├── ConnectionDropped
    │       │   └── StaleConnection    a reused connection; the request may be repeated once
    │       ├── ServerFailed   5xx
    │       ├── RateLimited    429 (or 503 with Retry-After)
    │       ├── PageCrashed    the page used too much memory, or killed the process that rendered it
    │       ├── Blocked        the site answered, but with a challenge, a wall or an empty shell
    │       ├── RefusedByProxies every proxy that was tried was refused (403, say)
    │       ├── RobotsUnreachable
    │       ├── DiskFull       no room on this machine for a file that is being downloaded
    │       └── RouteFailed    our own side failed: no attempt of the page is used up
    │           ├── ProxyFailed    the proxy refused, hung up or is unreachable
    │           ├── BrowserFailed  the browser died or could not be started
    │           ├── ApiFailed      the managed API is down, refuses the key, or never finishes
    │           ├── ProxyRefused    the site refused robots.txt to this proxy, and others are left
    │           ├── AllProxiesRest   every proxy of a pool is in quarantine
    │           └── BudgetSpent    no credits are left for this page
    └── Permanent              retrying gives the same result
        ├── InvalidUrl         not an http(s) URL a browser would open
        ├── LeaseLost          the lease expired or was taken over; nothing was changed
        ├── BatchRefused       the target of an output does not take a batch as it is; parts of it may be
        ├── FetchRefused       it must not or cannot be fetched
        │   ├── AddressRefused a private or reserved address
        │   ├── TlsFailed (CertificateOutdated), BadResponse, RedirectLoop
        │   ├── ExtensionFailed  an extension raised, hung or returned a wrong type
        │   ├── FileRefused    a file of an unwanted type, or too large
        │   ├── NotArchived    a replay wanted a page that has no raw copy
        │   ├── NoRoute        a route that does not exist, or is not installed
        │   ├── Uncertain      an unsafe request (POST, say) was sent; whether it arrived is unknown
        │   ├── Walled         like Blocked, and no remaining route could help
        │   └── ClientError    a status that is not tried again: 4xx other than 408, 425 and 429
        └── ParseFailed        the spider raised, or an item misses required fields

`reason` is the stable word by which a failure is listed, filtered and replayed: the same one in the attempts, in the
dead letter, on charts and in metrics. A status that says it all is the word: `http-503`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from .units import discreet


class GossamerError(Exception):
    """Root of the tree. `str(error)` is one line that tells a person what to do next. It never shows the password in a
    URL."""

    reason: str = "error"

    def __init__(self, *words: object) -> None:
        super().__init__(*(discreet(one) if isinstance(one, str) else one for one in words))


class Misconfigured(GossamerError):
    reason = "misconfigured"


class UnknownSetting(Misconfigured):
    reason = "unknown-setting"


class NotThere(Misconfigured):
    """What a person or a program asked for by name or id does not exist, or belongs to somebody else."""

    reason = "not-found"


class SpiderNotFound(Misconfigured):
    reason = "spider-not-found"


class BadState(Misconfigured):
    reason = "bad-state"


class StoreRefused(Misconfigured):
    """A store answers, and refuses what we need. A wrong setting, unless the store was in use before."""

    reason = "store-refused"


class MissingExtra(Misconfigured):
    reason = "missing-extra"


class Transient(GossamerError):
    reason = "transient"


class BackendUnavailable(Transient):
    reason = "backend-unavailable"


class FrontierFull(Transient):
    reason = "frontier-full"


class SourceFailed(Transient):
    reason = "source"


class FetchFailed(Transient):
    """An attempt that failed for a transient reason. `retry_after` is the server's own wish, unclamped."""

    reason = "network"
    status_says_why = False
    first_contact = False  # the host has never answered
    is_not_the_sites_fault = False  # a failure of our own side, or of one page only
    may_be_this_machines = False  # a fault that another machine may not have (crawl/second_opinion.py)

    def __init__(self, message: str, *, status: int | None = None, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        if self.status_says_why and status is not None:
            self.reason = f"http-{status}"


class ConnectFailed(FetchFailed):
    reason = "connect"


class HostUnroutable(ConnectFailed):
    may_be_this_machines = True


class ConnectionDropped(FetchFailed):
    reason = "dropped-connection"


class StaleConnection(ConnectionDropped):
    """A reused connection was closed without a response. Most often it had been idle for too long; whether the server
    read the request is unknown. So it is raised only for requests that are safe to repeat."""


class DnsFailed(FetchFailed):
    reason = "dns"
    may_be_this_machines = True


class TimedOut(FetchFailed):
    reason = "timeout"


class ConnectTimedOut(TimedOut):
    """Nothing was sent: no connection could be made in time."""


class ServerFailed(FetchFailed):
    status_says_why = True


class RateLimited(FetchFailed):
    status_says_why = True


class RobotsUnreachable(FetchFailed):
    reason = "robots-unreachable"


class DiskFull(FetchFailed):
    reason = "disk-full"
    is_not_the_sites_fault = True
    may_be_this_machines = True


class PageCrashed(FetchFailed):
    reason = "page-crashed"


class Blocked(FetchFailed):
    """The site does not serve this visitor. `kind` says what came instead of the page (routing/blocks.py)."""

    reason = "blocked"

    def __init__(self, message: str, *, kind: str, status: int | None = None) -> None:
        super().__init__(message, status=status)
        self.kind = kind
        self.reason = f"blocked-{kind}"


class RouteFailed(FetchFailed):
    """The way to the site failed, not the site: the task goes back to the queue and uses up no attempt.

    `wait` is how long it should wait there.
    """

    reason = "way"

    def __init__(self, message: str, *, wait: timedelta = timedelta(seconds=2), status: int | None = None) -> None:
        super().__init__(message, status=status)
        self.wait = wait
        self.lane: str | None = None  # where the task should wait, if it had climbed before


class ProxyFailed(RouteFailed):
    reason = "proxy"


class BrowserFailed(RouteFailed):
    reason = "browser"


class ApiFailed(RouteFailed):
    reason = "managed-api"


class ProxyRefused(RouteFailed):
    reason = "proxy-refused"


class AllProxiesRest(RouteFailed):
    """`refused`: some proxies rest for this site alone, because it refused them."""

    reason = "proxies-rest"
    refused = False


class RefusedByProxies(FetchFailed):
    """The site refused the page to every proxy that was tried."""

    status_says_why = True


class BudgetSpent(RouteFailed):
    """`budget` names the budget that would be exceeded."""

    reason = "budget"

    def __init__(self, message: str, *, wait: timedelta, budget: str) -> None:
        super().__init__(message, wait=wait)
        self.budget = budget


class Permanent(GossamerError):
    reason = "permanent"


class InvalidUrl(Permanent):
    reason = "invalid-url"


class BatchRefused(Permanent):
    """The target of an output does not take a batch, and has written nothing of it. It is halved, until the row that is
    not taken stands alone. `too_large`: its size is the reason."""

    reason = "batch-refused"

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


class LeaseLost(Permanent):
    reason = "lease-lost"


class FetchRefused(Permanent):
    reason = "refused"
    status_says_why = False
    may_be_this_machines = False  # as in FetchFailed

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        if self.status_says_why and status is not None:
            self.reason = f"http-{status}"


class AddressRefused(FetchRefused):
    reason = "private-address"


class TlsFailed(FetchRefused):
    reason = "tls"


class CertificateOutdated(TlsFailed):
    """The certificate is expired or not valid yet, by the clock of this machine."""

    may_be_this_machines = True


class BadResponse(FetchRefused):
    reason = "bad-response"


class Walled(FetchRefused):
    """The response is not the page, and no remaining route would help. `kind` as in `Blocked`."""

    reason = "blocked"

    def __init__(self, message: str, *, kind: str, status: int | None = None) -> None:
        super().__init__(message, status=status)
        self.kind = kind
        self.reason = f"blocked-{kind}"


class ExtensionFailed(FetchRefused):
    reason = "extension"


class FileRefused(FetchRefused):
    """The response is not the requested file. `reason` says what is wrong: `file-type` or `file-size`."""

    reason = "file"

    def __init__(self, message: str, *, reason: str, status: int | None = None) -> None:
        super().__init__(message, status=status)
        self.reason = reason


class NotArchived(FetchRefused):
    reason = "not-archived"


class LoginFailed(FetchRefused):
    """The session of the page cannot be logged in, or does not stay logged in."""

    reason = "login"


class NoRoute(FetchRefused):
    """The spider or the settings name a route that does not exist here, or is not installed."""

    reason = "no-way"


class Uncertain(FetchRefused):
    """A request that must not be sent twice was sent, and no response came."""

    reason = "uncertain"


class RedirectLoop(FetchRefused):
    reason = "redirect-loop"


class ClientError(FetchRefused):
    """A status that no further attempt changes."""

    status_says_why = True


class ParseFailed(Permanent):
    """The page could not be turned into data. `detail` is the traceback or the list of missing fields; if an item was
    refused, `type` is its type and `fields` are the faulty ones. `items` counts those that were yielded before and are
    lost, of which `faulty` are to blame. `kept` is what is stored and queued nevertheless (a `ParsedPage`), where a
    framework promises that."""

    reason = "parse"

    def __init__(self, message: str, *, detail: str = "", type: str = "", fields: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.detail = discreet(detail)
        self.type = type
        self.fields = tuple(fields)
        self.items = 0
        self.faulty = 0
        self.kept: Any = None  # Any: ParsedPage, which this module cannot import
