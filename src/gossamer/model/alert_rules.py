"""The rules of alerts: each judges a few numbers of a `Situation`. Pure. alert_table.py declares the alerts.

A part of the situation that is None is unknown: its alerts stay as they are, and after a while `figures` reports that,
because missing data is not a good sign.
"""

from __future__ import annotations

from ..units import many, size, span
from .alert import AlertTerms, Finding, Findings, Sample
from .situation import ALL_SITES, Situation

COVERED = 0.9  # share of its window that samples must span before a slope is meaningful
LEAST_SHARE = 0.1  # of failures; a smaller share is no spike, however rare failures were before


# -- the queue -----------------------------------------------------------------------------------------------------


def backlog(situation: Situation, terms: AlertTerms) -> Findings | None:
    """Pages are found faster than they are fetched: the queue grew by the share `threshold` in the window."""
    if not situation.samples:
        return None
    now = situation.samples[-1]
    recent = [one for one in situation.samples if now.at - one.at <= terms.window.total_seconds()]
    covered = now.at - recent[0].at
    if covered < COVERED * terms.window.total_seconds():
        return {} if now.open < terms.minimum else None
    slope = _slope(recent)  # pages per second
    if now.open < max(1, terms.minimum) or slope * covered < terms.threshold * now.open:
        return {}
    done = (now.settled - recent[0].settled) / covered
    pace = f"The known ones need {span(now.open / done)} at {done * 60:,.0f} a minute." if done else "Nothing is done."
    words = f"{many(now.open, 'page')} are open, {slope * 60:,.0f} more every minute than are fetched. {pace}"
    return {ALL_SITES: Finding(round(slope * 60, 2), words)}


def _slope(samples: list[Sample]) -> float:
    """How many open pages are added per second, by least squares."""
    middle = sum(one.at for one in samples) / len(samples)
    mean = sum(one.open for one in samples) / len(samples)
    spread = sum((one.at - middle) ** 2 for one in samples)
    return sum((one.at - middle) * (one.open - mean) for one in samples) / spread if spread else 0.0


def stalled(situation: Situation, terms: AlertTerms) -> Findings | None:
    """Pages of a job may be fetched, but it has made no progress for the window."""
    if situation.jobs is None:
        return None
    why = " No worker is alive: start one (gossamer worker)." if situation.living == 0 else ""
    return {
        one.job: Finding(one.idle, f"No progress for {span(one.idle)}, and {one.ready:,} pages are ready.{why}")
        for one in situation.jobs
        if one.ready > terms.minimum and one.idle >= terms.window.total_seconds()
    }


def workers(situation: Situation, terms: AlertTerms) -> Findings | None:
    """`threshold` or more workers sent no heartbeat; or a machine is at fault; or fewer than `minimum` are alive."""
    if situation.living is None:
        return None
    gone = len(situation.missing)
    if gone and gone >= terms.threshold:
        named = ", ".join(situation.missing[:5]) + (" and others" if gone > 5 else "")
        return {ALL_SITES: Finding(gone, f"{many(gone, 'worker')} sent no heartbeat: {named}.")}
    faulty = len(situation.machines)
    if faulty:
        named = "; ".join(situation.machines[:5]) + ("; and others" if faulty > 5 else "")
        return {ALL_SITES: Finding(faulty, f"{many(faulty, 'machine')} at fault: {named}.")}
    if situation.living < terms.minimum:
        words = f"{many(situation.living, 'worker')} alive; there should be {terms.minimum} or more."
        return {ALL_SITES: Finding(situation.living, words)}
    return {}


# -- pages ---------------------------------------------------------------------------------------------------------


def success(situation: Situation, terms: AlertTerms) -> Findings | None:
    """Of at least `minimum` requests in the window, less than the share `threshold` succeeded."""
    if situation.traffic is None:
        return None
    return {
        site: Finding(
            round(1 - one.failed, 4),
            f"{1 - one.failed:.0%} of {many(one.total, 'request')} of the last {_window(terms)} succeeded.",
        )
        for site, one in situation.traffic.items()
        if one.total >= max(1, terms.minimum) and 1 - one.failed < terms.threshold
    }


def errors(situation: Situation, terms: AlertTerms) -> Findings | None:
    """A site fails `threshold` times as often as on the day before, with at least `minimum` failures."""
    if situation.errors is None:
        return None
    found = {}
    for site, (now, past) in situation.errors.items():
        if past.total < max(1, terms.minimum):
            continue  # without a past there is nothing to compare with; `success` covers it
        if now.bad >= max(1, terms.minimum) and now.failed >= max(LEAST_SHARE, past.failed * terms.threshold):
            before = f"over the day before it was {past.failed:.1%}"
            words = f"{now.failed:.0%} of {many(now.total, 'request')} failed in the last {_window(terms)}; {before}."
            found[site] = Finding(round(now.failed, 4), words)
    return found


def dead_letters(situation: Situation, terms: AlertTerms) -> Findings | None:
    """`threshold` or more pages were given up in the window."""
    if situation.dead is None:
        return None
    if situation.dead < max(1, terms.threshold):
        return {}
    words = f"{many(situation.dead, 'page')} were given up in the last {_window(terms)}: gossamer dead list."
    if situation.failing:
        words = f"{words} {situation.failing}"
    return {ALL_SITES: Finding(situation.dead, words)}


def figures(situation: Situation, terms: AlertTerms) -> Findings | None:
    """Pages are in flight, but no figure came for `threshold` seconds; or a part of the situation cannot be read."""
    found = {part: Finding(0.0, f"It cannot be read: {why}") for part, why in situation.unread.items()}
    if situation.figures_age is not None and situation.figures_age >= terms.threshold:
        words = f"Pages are in flight, but no result was stored for {span(situation.figures_age)}."
        found[ALL_SITES] = Finding(round(situation.figures_age), words)
    return found


def quality(situation: Situation, terms: AlertTerms) -> Findings | None:
    """Of at least `minimum` items, a smaller share is faultless today than in the window before, by `threshold`."""
    if situation.quality is None:
        return None
    return {
        one.spider: Finding(
            one.score,
            f"{one.score:.0%} of {many(one.items, 'item')} are faultless today; before it was {one.usual:.0%}.",
        )
        for one in situation.quality
        if min(one.items, one.usual_items) >= max(1, terms.minimum) and one.usual - one.score >= terms.threshold
    }


# -- what a crawl needs --------------------------------------------------------------------------------------------


def proxies(situation: Situation, terms: AlertTerms) -> Findings | None:
    """All exits of a pool rest, the share `threshold` of them rests or fails, or its exits cannot be read."""
    if situation.pools is None:
        return None
    found = {}
    for one in situation.pools:
        out = one.resting + one.failing
        if one.trouble:
            found[one.pool] = Finding(1.0, one.trouble)
        elif one.listed >= max(1, terms.minimum) and out / one.listed >= terms.threshold:
            what = "All exits rest" if one.resting >= one.listed else f"{one.resting} exits rest, {one.failing} fail"
            found[one.pool] = Finding(round(out / one.listed, 4), f"{what}, of {one.listed}: gossamer proxies.")
    return found


def budget(situation: Situation, terms: AlertTerms) -> Findings | None:
    """No more than the share `threshold` of a budget is left."""
    if situation.budgets is None:
        return None
    return {
        one.budget: Finding(
            round(one.left / one.limit, 4), f"{one.left:,.6g} of {one.limit:,.6g} credits are left for {one.meaning}."
        )
        for one in situation.budgets
        if one.limit > 0 and one.left / one.limit <= terms.threshold
    }


def schedules(situation: Situation, terms: AlertTerms) -> Findings | None:
    """A run is late by `threshold` seconds, could not begin, or yielded nothing."""
    if situation.schedules is None:
        return None
    found = {}
    for one in situation.schedules:
        if one.trouble:
            found[one.schedule] = Finding(one.late, f"Its run could not begin: {one.trouble}")
        elif one.late >= terms.threshold > 0:
            found[one.schedule] = Finding(round(one.late), f"Its run is late by {span(one.late)}.")
        elif one.outcome:
            found[one.schedule] = Finding(0.0, f"Its last run, {one.last_job}, yielded nothing. {one.outcome}")
    return found


def callbacks(situation: Situation, terms: AlertTerms) -> Findings | None:
    """`minimum` or more callbacks were given up in the window."""
    if situation.callbacks is None:
        return None
    if situation.callbacks < max(1, terms.minimum):
        return {}
    words = f"{many(situation.callbacks, 'callback')} given up in the last {_window(terms)}: gossamer callbacks list."
    return {ALL_SITES: Finding(situation.callbacks, words)}


def logins(situation: Situation, terms: AlertTerms) -> Findings | None:
    """`minimum` or more logins of a session failed in a row."""
    if situation.logins is None:
        return None
    return {
        one.session: Finding(one.failures, f"{many(one.failures, 'login')} in a row failed: {one.error}")
        for one in situation.logins
        if one.failures >= max(1, terms.minimum)
    }


def stores(situation: Situation, terms: AlertTerms) -> Findings | None:
    return {role: Finding(1.0, trouble) for role, trouble in situation.stores.items()}


def spool(situation: Situation, terms: AlertTerms) -> Findings | None:
    """Results wait on a disk without a living process to store them, or fill the share `threshold` of its space."""
    if situation.spools is None:
        return None
    found = {}
    for one in situation.spools:
        held = f"{many(one.results, 'result')} ({size(one.bytes)}) wait on its disk"
        share = round(one.bytes / one.limit, 4) if one.limit else 0.0
        if one.full or share >= terms.threshold > 0:
            found[one.host] = Finding(share, f"{held}, which is nearly full: when it is, nothing is fetched there.")
        elif one.results and not one.in_hand:
            found[one.host] = Finding(share, f"{held}, and no worker runs there: gossamer spool drain.")
    return found


def _window(terms: AlertTerms) -> str:
    return span(terms.window.total_seconds())
