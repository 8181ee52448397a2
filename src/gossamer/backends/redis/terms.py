"""What the scripts must know of a job: its number, and its admission terms as plain numbers."""

from __future__ import annotations

import math

import msgspec

from ...frontier.contract import JobTerms

MAX_FILTER_BITS = 2**32  # what one string of the server can hold


class KnownJob(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    number: int
    terms: JobTerms


def admission_terms(terms: JobTerms, shards: int) -> tuple[int | float, ...]:
    """Budgets (-1: none), dedup window in seconds (-1: for ever), bits and hashes of the filter (0: exact)."""
    window = terms.dedup_window
    bits, hashes = (0, 0) if terms.dedup == "exact" else filter_size(terms.dedup_expected // shards, terms.dedup_error)
    return (
        -1 if terms.max_urls_per_site is None else terms.max_urls_per_site,
        -1 if terms.max_urls_per_pattern is None else terms.max_urls_per_pattern,
        -1 if window is None else window.total_seconds(),
        bits,
        hashes,
    )


def filter_size(expected: int, error: float) -> tuple[int, int]:
    """Bits and hashes of a Bloom filter that errs in at most `error` of the cases when `expected` URLs are in it."""
    bits = math.ceil(-max(expected, 1000) * math.log(error) / math.log(2) ** 2)
    return min(bits, MAX_FILTER_BITS), max(1, round(-math.log2(error)))
