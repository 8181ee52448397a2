"""Judges the names of sites in the settings. Commands that only look use it, so it loads nothing that fetches."""

from __future__ import annotations

from functools import lru_cache

from ...errors import InvalidUrl
from ...model.url import is_literal, site_of, site_of_host, typed_url


@lru_cache(maxsize=4096)  # asked for each of many short jobs
def domain_fault(name: str) -> str:
    """Why a table [domains."NAME"] would match no site; empty if it may."""
    host = name.removeprefix("*.")
    if is_literal(host) or any(sign in host for sign in "*?["):
        return ""  # an IP address, or a pattern whose meaning cannot be checked
    try:
        site = site_of(typed_url(host if "://" in host else f"http://{host}/"))
    except InvalidUrl:
        return f'[domains."{name}"] names no site. Write the domain of one: [domains."shop.example"].'
    if host == name == site or (host != name and site_of_host(f"a.{host}") != host):
        return ""
    return f'[domains."{name}"] would hold for no page: they belong to the site {site}. Write [domains."{site}"].'
