"""How a proxy's health changes with each report. Pure; the state file uses it, and lua/proxies_report.lua does the
same.

After a ban a proxy rests at once, after failures only if there are several in a row. Each rest is twice as long as the
one before, until successes in a row have made up for it. Requests in flight when a rest begins are counted, but make it
neither longer nor shorter: a ban that hits ten requests is one ban.

A ban by a site is a rest for that site alone. A refusal is no ban yet, for the page may be forbidden to everybody: the
proxy rests after several in a row without a success at the site in between, or as soon as the same page got through
another proxy.
"""

from __future__ import annotations

import msgspec

from ...model.route import ProxyOutcome
from .contract import ProxyAtSite, ProxyHealth, ProxyReport, RestTerms

DECAY = 0.1  # the weight of the newest use in the decayed means
EASE = 5  # successes in a row that cancel one strike
FAILURE_CAP = 300.0  # seconds: our own network may be at fault, so this rest does not grow for ever
MAX_STRIKES = 30
MAX_WORDS = 200
REMEMBERED = 3600.0  # seconds for which a page's proxies are remembered
RENEWED = 30 * 86_400.0  # seconds for which a session stays renewed
FORGOTTEN = 30 * 86_400.0  # seconds after its last use at which a proxy's figures are deleted
KEPT_AT_SITE = 86_400.0  # seconds after which it is forgotten how a proxy fared at a site; at least the longest rest
LEAST_WEIGHT = 0.1  # a proxy that always fails is still tried now and then


def after(health: ProxyHealth, report: ProxyReport, terms: RestTerms, now: float) -> ProxyHealth:
    """The health of the proxy after the report."""
    times, awake = report.times, now >= health.rest_until
    share = 1.0 - (1.0 - DECAY) ** times
    good = 1.0 if report.outcome is ProxyOutcome.OK else 0.0
    tried = msgspec.structs.replace(
        health,
        tries=health.tries + times,
        bytes=health.bytes + report.bytes,
        credits=health.credits + report.credits,
        score=health.score + (good - health.score) * share,
        changed_at=now,
    )
    if report.outcome is ProxyOutcome.OK:
        return _succeeded(tried, report, share, awake)
    if report.site or report.outcome is ProxyOutcome.REFUSED:
        # The site's answer came through: the proxy works, and other sites may like it.
        return msgspec.structs.replace(
            tried,
            bans=tried.bans + times,
            score=health.score,
            run=max(tried.run, 0),
            last_error=report.words or tried.last_error,
        )
    if report.outcome is ProxyOutcome.BANNED:
        banned = msgspec.structs.replace(
            tried, bans=tried.bans + times, run=min(tried.run, 0), last_error=report.words or tried.last_error
        )
        return _rest(banned, terms, terms.max_cooldown, now) if awake and terms.bans_rest else banned
    failed = msgspec.structs.replace(
        tried,
        failures=tried.failures + times,
        run=min(tried.run, 0) - times,
        last_error=report.words or tried.last_error,
    )
    if awake and failed.run <= -terms.patience:
        return _rest(failed, terms, min(terms.max_cooldown, FAILURE_CAP), now)
    return failed


def after_at_site(known: ProxyAtSite, report: ProxyReport, terms: RestTerms, now: float) -> ProxyAtSite:
    """How the proxy fares at the site of the report, after it."""
    awake = now >= known.rest_until
    if report.outcome is ProxyOutcome.OK:
        if not awake:
            return msgspec.structs.replace(known, changed_at=now)
        before = max(known.run, 0)
        run = before + report.times
        strikes = max(0, known.strikes - (run // EASE - before // EASE))
        return msgspec.structs.replace(known, run=run, strikes=strikes, changed_at=now)
    refused = msgspec.structs.replace(known, run=min(known.run, 0) - report.times, changed_at=now)
    certain = report.outcome is ProxyOutcome.BANNED and terms.bans_rest
    again = known.strikes > 0 and known.run < 0  # refused before its rest, and after it
    if awake and (certain or again or refused.run <= -terms.patience):
        rest_until = now + _seconds(known.strikes, terms, terms.max_cooldown)
        return msgspec.structs.replace(refused, rest_until=rest_until, strikes=known.strikes + 1)
    return refused


def weight(health: ProxyHealth | None) -> float:
    """A proxy's share of the work, compared with others. One that was never used is trusted."""
    return 1.0 if health is None else max(LEAST_WEIGHT, health.score)


def _succeeded(health: ProxyHealth, report: ProxyReport, share: float, awake: bool) -> ProxyHealth:
    latency = report.seconds if health.latency is None else health.latency + (report.seconds - health.latency) * share
    run, strikes = health.run, health.strikes
    if awake:
        before = max(run, 0)
        run = before + report.times
        strikes = max(0, strikes - (run // EASE - before // EASE))
    return msgspec.structs.replace(
        health, successes=health.successes + report.times, latency=latency, run=run, strikes=strikes
    )


def _rest(health: ProxyHealth, terms: RestTerms, cap: float, now: float) -> ProxyHealth:
    seconds = _seconds(health.strikes, terms, cap)
    return msgspec.structs.replace(health, rest_until=now + seconds, strikes=health.strikes + 1)


def _seconds(strikes: int, terms: RestTerms, cap: float) -> float:
    """How long the next rest is."""
    return min(terms.cooldown * 2.0 ** min(strikes, MAX_STRIKES), cap)
