"""The rules of alerts: each judges a few numbers of a `Situation`. Pure. alert_table.py declares the alerts.

A part of the situation that is None is unknown: its alerts hold, and after a while `figures` reports that, because
missing data is not a good sign. A rule says of a subject what is wrong, that it is GOOD, or that there is NO_DATA. What
it means that a subject is missing from its answer depends on the sort of the alert (alert_table.py).
"""

from __future__ import annotations

from ..units import many, size, span
from .alert import GOOD, NO_DATA, AlertTerms, Finding, Findings, Good, Reading, Sample
from .incident import Subject, SubjectKind
from .situation import ALL_SITES, Situation, Traffic

COVERED = 0.9  # share of its window that samples must span before a slope is meaningful
LEAST_SHARE = 0.1  # of failures; a smaller share is no spike, however rare failures were before
EVIDENCE = 0.1  # of the `minimum` of an alert: so much shows that it is good again


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
    """Pages of a job may be fetched, but it has made no progress for the window. It is good again when it has made
    some: that its pages have to wait in between says nothing."""
    if situation.jobs is None:
        return None
    why, cause = "", None
    if situation.living == 0:
        why, cause = " No worker is alive: start one (gossamer worker).", Subject(SubjectKind.WORKERS)
    found: dict[str, Reading] = {}
    for one in situation.jobs:
        if one.paused:
            found[one.job] = NO_DATA
        elif one.ready > terms.minimum and one.idle >= terms.window.total_seconds():
            words = f"No progress for {span(one.idle)}, and {many(one.ready, 'page')} may be fetched.{why}"
            found[one.job] = Finding(one.idle, words, mark=one.job, cause=cause)
        elif one.idle >= terms.window.total_seconds():
            found[one.job] = NO_DATA
    return found


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
    """Of at least `minimum` requests in the window, less than the share `threshold` succeeded. All sites together are
    judged without those that are found wrong by themselves: one bad site is one problem."""
    if situation.traffic is None:
        return None
    found: dict[str, Reading] = {}
    rest = situation.traffic.get(ALL_SITES, Traffic())
    for site, one in situation.traffic.items():
        if site == ALL_SITES:
            continue
        reading = _success(one, terms, _cause(situation, site, one))
        if reading is not None:
            found[site] = reading
        if isinstance(reading, Finding):
            rest = Traffic(rest.good - one.good, rest.bad - one.bad)
    together = _success(rest, terms)
    if together is not None:
        found[ALL_SITES] = together
    return found


def _cause(situation: Situation, site: str, one: Traffic) -> Subject | None:
    """The spider, if most of the requests to a site that failed are dead letters of pages that came."""
    letters = next((each for each in situation.dead or () if each.site == site), None)
    return letters.cause if letters is not None and 2 * letters.recent >= one.bad else None


def _success(one: Traffic, terms: AlertTerms, cause: Subject | None = None) -> Reading | None:
    """None: too little to tell."""
    share = 1 - one.failed
    if one.total >= max(1, terms.minimum) and share < terms.threshold:
        words = f"{share:.0%} of {many(one.total, 'request')} of the last {_window(terms)} succeeded."
        return Finding(round(share, 4), words, cause=cause)
    return GOOD if share >= terms.threshold and one.total >= _evidence(terms) else None


def errors(situation: Situation, terms: AlertTerms) -> Findings | None:
    """A site fails `threshold` times as often as on the day before, with at least `minimum` failures. It is good again
    when it fails as little as the day before it fired would allow."""
    if situation.errors is None:
        return None
    found: dict[str, Reading] = {}
    for site, (now, past) in situation.errors.items():
        if past.total < max(1, terms.minimum):
            continue  # without a past there is nothing to compare with; `success` covers it
        limit = max(LEAST_SHARE, past.failed * terms.threshold)
        if now.bad >= max(1, terms.minimum) and now.failed >= limit:
            before = f"over the day before it was {past.failed:.1%}"
            words = f"{now.failed:.0%} of {many(now.total, 'request')} failed in the last {_window(terms)}; {before}."
            found[site] = Finding(round(now.failed, 4), words, limit=limit, cause=_cause(situation, site, now))
        elif now.failed < limit and now.total >= _evidence(terms):
            found[site] = Good(now.failed)
    return found


def jobs(situation: Situation, terms: AlertTerms) -> Findings | None:
    """The last run of a name came to nothing, and ended within the window. A run under way says nothing yet."""
    if situation.runs is None:
        return None
    return {
        one.name: NO_DATA
        if one.again
        else Finding(1.0, f"{one.job} {one.words}", mark=one.job, cause=one.cause)
        if one.failed
        else GOOD
        for one in situation.runs
    }


def dead_letters(situation: Situation, terms: AlertTerms) -> Findings | None:
    """`threshold` or more pages of a site were given up in the window. It is good again when so many were mended that
    fewer are left, or when the site's requests succeed again."""
    if situation.dead is None:
        return None
    least, found = max(1, terms.threshold), dict[str, Reading]()
    flooded = {one.site: one.recent for one in situation.dead if one.site != ALL_SITES and one.recent >= least}
    for one in situation.dead:
        here = one.site or "all sites together"
        recent = one.recent - sum(flooded.values()) if one.site == ALL_SITES else one.recent
        if recent >= least:
            words = f"{many(recent, 'page')} were given up at {here} in the last {_window(terms)}. {one.words}"
            found[one.site] = Finding(recent, words.strip(), cause=one.cause)
        elif one.unmended >= least and not _is_well(situation, one.site):
            found[one.site] = NO_DATA
    return found


def _is_well(situation: Situation, site: str) -> bool:
    """Do nearly all requests of the last minutes succeed?"""
    one = (situation.traffic or {}).get(site, Traffic())
    return one.good > 0 and one.failed <= LEAST_SHARE


def figures(situation: Situation, terms: AlertTerms) -> Findings | None:
    """Pages are in flight, but no figure came for `threshold` seconds; or a part of the situation cannot be read."""
    found: dict[str, Reading] = {
        part: Finding(0.0, f"It cannot be read: {why}") for part, why in situation.unread.items()
    }
    if situation.figures_age is not None and situation.figures_age >= terms.threshold:
        words = f"Pages are in flight, but no result was stored for {span(situation.figures_age)}."
        found[ALL_SITES] = Finding(round(situation.figures_age), words)
    elif not situation.figures_fresh:
        found[ALL_SITES] = NO_DATA
    return found


def layout(situation: Situation, terms: AlertTerms) -> Findings | None:
    """A recipe met a new layout, and that is not over."""
    if situation.layouts is None:
        return None
    return {one.spider: Finding(float(one.lost), one.words) for one in situation.layouts}


def quality(situation: Situation, terms: AlertTerms) -> Findings | None:
    """Of at least `minimum` items, a smaller share is faultless today than in the window before, by `threshold`. It is
    good again when the share is what the window before it fired would allow."""
    if situation.quality is None:
        return None
    found: dict[str, Reading] = {}
    for one in situation.quality:
        limit = one.usual - terms.threshold
        if min(one.items, one.usual_items) >= max(1, terms.minimum) and one.score <= limit:
            now = f"{one.score:.0%} of {many(one.items, 'item')} are faultless today"
            found[one.spider] = Finding(one.score, f"{now}; before it was {one.usual:.0%}.", limit=limit)
        elif one.score > limit and one.items >= _evidence(terms):
            found[one.spider] = Good(one.score)
    return found


# -- what a crawl needs --------------------------------------------------------------------------------------------


def proxies(situation: Situation, terms: AlertTerms) -> Findings | None:
    """All proxies of a pool rest, the share `threshold` of them rests or fails, or its proxies cannot be read. It is
    good again when one of them works."""
    if situation.pools is None:
        return None
    found: dict[str, Reading] = {}
    for one in situation.pools:
        out = one.resting + one.failing
        if one.trouble:
            found[one.pool] = Finding(1.0, one.trouble)
        elif one.listed >= max(1, terms.minimum) and out / one.listed >= terms.threshold:
            every = many(one.listed, "proxy", "proxies")
            what = (
                f"All of {every} rest."
                if one.resting >= one.listed
                else f"Of {every}, {one.resting} rest and {one.failing} fail."
            )
            found[one.pool] = Finding(round(out / one.listed, 4), what)
        else:
            found[one.pool] = GOOD if one.working else NO_DATA
    return found


def budget(situation: Situation, terms: AlertTerms) -> Findings | None:
    """No more than the share `threshold` of a budget is left."""
    if situation.budgets is None:
        return None
    return {
        one.budget: Finding(
            round(one.left / one.limit, 4),
            f"{one.left:,.6g} of {one.limit:,.6g} credits are left for {one.meaning}.",
            cause=_budget_subject(one.budget),
        )
        for one in situation.budgets
        if one.limit > 0 and one.left / one.limit <= terms.threshold
    }


def disk(situation: Situation, terms: AlertTerms) -> Findings | None:
    """The share `threshold` of a disk is free, or less; or it is full within `window`, as fast as its stores grow."""
    if situation.disks is None:
        return None
    soon = terms.window.total_seconds()
    return {
        one.store: Finding(round(one.free, 4), one.words)
        for one in situation.disks
        if one.free <= terms.threshold or (one.full_in is not None and one.full_in <= soon)
    }


def _budget_subject(budget: str) -> Subject:
    """What the budget belongs to: a job, a site, or any day."""
    kind, _, rest = budget.partition("/")
    match kind:
        case "job":
            return Subject(SubjectKind.JOB, rest)
        case "domain":
            return Subject(SubjectKind.SITE, rest.partition("/")[2])
    return Subject(SubjectKind.BUDGET, kind)


def schedules(situation: Situation, terms: AlertTerms) -> Findings | None:
    """A run is late by `threshold` seconds, or could not begin."""
    if situation.schedules is None:
        return None
    found = {}
    for one in situation.schedules:
        if one.trouble:
            found[one.schedule] = Finding(one.late, f"Its run could not begin: {one.trouble}")
        elif one.late >= terms.threshold > 0:
            found[one.schedule] = Finding(round(one.late), f"Its run is late by {span(one.late)}.")
    return found


def callbacks(situation: Situation, terms: AlertTerms) -> Findings | None:
    """`minimum` or more callbacks to one host were given up in the window; it is good again when one is delivered."""
    if situation.receivers is None:
        return None
    found: dict[str, Reading] = {}
    for one in situation.receivers:
        if one.delivered:
            found[one.host] = GOOD
        elif one.failed >= max(1, terms.minimum):
            words = f"{many(one.failed, 'callback')} given up in the last {_window(terms)}: gossamer callbacks list."
            found[one.host] = Finding(one.failed, words)
    return found


def logins(situation: Situation, terms: AlertTerms) -> Findings | None:
    """`minimum` or more logins of a session failed in a row."""
    if situation.logins is None:
        return None
    return {
        one.session: Finding(one.failures, f"{many(one.failures, 'login')} in a row failed: {one.error}")
        for one in situation.logins
        if one.failures >= max(1, terms.minimum)
    }


def outputs(situation: Situation, terms: AlertTerms) -> Findings | None:
    """An output has stopped, has not written what has changed for the window, or refuses `threshold` rows."""
    if situation.outputs is None:
        return None
    found: dict[str, Reading] = {}
    for one in situation.outputs:
        left = f"{many(one.lag, 'record')} not written"
        if one.stopped:
            found[one.output] = Finding(one.lag, f"It has stopped, with {left}: {one.why}")
        elif one.paused:
            found[one.output] = NO_DATA
        elif one.lag and one.idle >= terms.window.total_seconds():
            why = one.why or "No process runs it, or it is too slow."
            found[one.output] = Finding(one.lag, f"Nothing was written for {span(one.idle)}, and {left}. {why}")
        elif one.dead >= max(1, terms.threshold):
            found[one.output] = Finding(one.dead, f"Its target refused {many(one.dead, 'row')}.")
    return found


def stores(situation: Situation, terms: AlertTerms) -> Findings | None:
    """A store does not answer, or has no room. Only a worker that is alive can tell that an archive has room again."""
    found: dict[str, Reading] = {role: Finding(1.0, trouble) for role, trouble in situation.stores.items()}
    return found if situation.living else {"archive": NO_DATA, **found}


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
        elif one.results and not one.alive:
            found[one.host] = Finding(share, f"{held}, and no worker runs there: gossamer spool drain.")
    return found


def _evidence(terms: AlertTerms) -> float:
    """So many requests or items show that it is good again."""
    return max(1, EVIDENCE * terms.minimum)


def _window(terms: AlertTerms) -> str:
    return span(terms.window.total_seconds())
