"""[routes.NAME] and [router]: the ways to a page, what they cost, and what may be spent."""

from __future__ import annotations

from datetime import timedelta

import msgspec


class RouteTable(msgspec.Struct, frozen=True, kw_only=True):
    """One way to a page. `direct` and `browser` are there without being written down."""

    transport: str = "http"  # or "profile", "browser", "managed"
    pool: str = ""  # the name of a [proxies] table; empty: no proxy
    profile: str = ""  # of TLS and headers, for transport = "profile"
    vendor: str = ""  # the name of a [managed] table
    price: float = 1.0  # tokens for each request
    price_per_gb: float = 0.0  # tokens for each GB received


class RouterTable(msgspec.Struct, frozen=True, kw_only=True):
    ladder: tuple[str, ...] = ()  # routes from cheap to dear; empty: direct and all [routes], by price
    learn: bool = True
    recheck: timedelta = timedelta(minutes=30)  # before a cheaper route is tried again; doubles when that fails
    max_recheck: timedelta = timedelta(days=1)
    budget_job: float | None = None  # tokens
    budget_day: float | None = None
    budget_domain: float | None = None  # for each domain and day
    when_spent: str = "wait"  # or "bury"
