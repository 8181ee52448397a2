"""Every alert, declared once: what it means and what to do, its usual terms, its rule, and the same question in PromQL.

Settings, messages, metrics and deploy/prometheus/rules.yaml derive from `ALERTS`; the manual is compared with it. A new
alert is a row here, its rule in alert_rules.py, and what that reads in project/alerts/readings.py.

There are two sorts. What stands somewhere and can be read at any time, such as a budget or a queue, is good if its rule
finds nothing. What shows only while work is done, such as the share of requests that succeed, is `sampled`: if its rule
says nothing about a subject, there was nothing to measure, and an alert that fires holds.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from datetime import timedelta
from string import Template

import msgspec

from . import alert_rules
from .alert import AlertTerms, Findings, Severity
from .incident import SubjectKind
from .situation import Situation

Rule = Callable[[Situation, AlertTerms], Findings | None]


class MetricRule(msgspec.Struct, frozen=True):
    """An alert as a rule of Prometheus. `query` has `$threshold`, `$minimum`, `$window` (900s) and `$seconds` (900) in
    place of the terms; `summary` is a template of Prometheus."""

    name: str
    query: str
    summary: str

    def expression(self, terms: AlertTerms) -> str:
        seconds = terms.window.total_seconds()
        return Template(self.query).substitute(
            threshold=f"{terms.threshold:g}", minimum=terms.minimum, window=f"{seconds:.0f}s", seconds=f"{seconds:g}"
        )


class Alert(msgspec.Struct, frozen=True):
    """An alert: one sentence that says what is wrong, one that says what to do first, its usual terms, its rule, the
    stores without which it is unknown, what its subjects are (the subject "" is always the project), whether it is
    `sampled`, and its rules for Prometheus where a metric tells it."""

    name: str
    meaning: str
    advice: str
    terms: AlertTerms
    rule: Rule
    needs: tuple[str, ...] = ("state",)
    about: SubjectKind = SubjectKind.PROJECT
    sampled: bool = False
    metrics: tuple[MetricRule, ...] = ()


_MINUTE, _HOUR, _NOW, _CRITICAL = timedelta(minutes=1), timedelta(hours=1), timedelta(0), Severity.CRITICAL
_RESULTS = ("state", "records")
_FETCHING = ("state", "records", "archive")  # if results have no room, nothing is fetched

GOOD = 'outcome=~"done|unchanged|redirected"'
TRIED = 'outcome!~"dropped|released|reparsed|unparsed"'
_GOOD, _TRIED = (f"sum(increase(gossamer_pages_total{{{which}}}[$window]))" for which in (GOOD, TRIED))
_SUCCESS = f"({_GOOD} or {_TRIED} * 0) / {_TRIED} < $threshold and {_TRIED} >= $minimum"
_OPEN = "sum(max by (state, lane) (gossamer_queue_tasks))"

_DECLARED = (
    Alert("backlog", "Pages are found faster than they are fetched.",
          "Add workers, raise the rate of the sites that wait (gossamer status JOB), or limit the crawl.",
          AlertTerms(threshold=0.1, window=30 * _MINUTE, minimum=1000, wait=15 * _MINUTE), alert_rules.backlog,
          needs=_FETCHING,
          metrics=(
              MetricRule("GossamerBacklogGrows",
                         f"{_OPEN} >= $minimum and deriv({_OPEN}[$window:1m]) * $seconds >= $threshold * {_OPEN}",
                         "Pages are found faster than they are fetched: {{ $value | humanize }} are open."),
          )),
    Alert("success", "Too few requests succeed, at one site or overall.",
          "gossamer dead list has the reasons, gossamer why URL one page's story. A site that blocks needs a route.",
          AlertTerms(threshold=0.8, window=15 * _MINUTE, minimum=50), alert_rules.success, about=SubjectKind.SITE,
          sampled=True, needs=_RESULTS,
          metrics=(
              MetricRule("GossamerSuccessLow", _SUCCESS,
                         "{{ $value | humanizePercentage }} of the requests of the last minutes succeeded."),
              MetricRule("GossamerSiteFails",
                         _SUCCESS.replace("sum(", "sum by (domain) (")
                         .replace("gossamer_pages", "gossamer_domain_pages"),
                         "{{ $value | humanizePercentage }} of the requests to {{ $labels.domain }} succeeded."),
          )),
    Alert("errors", "A site fails far more often than it did during the day before.",
          "Open the site in a browser: is it down, was it changed, does it block? Then as for success.",
          AlertTerms(threshold=3.0, window=15 * _MINUTE, minimum=20), alert_rules.errors, about=SubjectKind.SITE,
          sampled=True, needs=_RESULTS),
    Alert("stalled", "A job has pages that may be fetched, but makes no progress.",
          "gossamer workers: is one alive, and does it serve the routes of the job? Then look at its log.",
          AlertTerms(window=10 * _MINUTE, wait=_MINUTE, severity=_CRITICAL), alert_rules.stalled,
          about=SubjectKind.JOB, needs=_FETCHING,
          metrics=(
              MetricRule("GossamerStalled",
                         "max(gossamer_queue_oldest_ready_seconds) >= $seconds "
                         "and sum(increase(gossamer_pages_total[$window])) == 0",
                         "Pages are ready, and nothing is fetched. Is a worker running?"),
          )),
    Alert("jobs", "The last run of a job failed, gave no records, or was held back.",
          "gossamer status JOB says why, gossamer dead list --job JOB groups its failures; "
          "mend the cause, run it again.",
          AlertTerms(window=24 * _HOUR, wait=_NOW), alert_rules.jobs, needs=_RESULTS, about=SubjectKind.SPIDER,
          sampled=True),
    Alert("dead-letters", "Many pages of a site were given up in a short time.",
          "gossamer dead list groups them by message; fix the cause, then gossamer dead replay.",
          AlertTerms(threshold=100, window=_HOUR, wait=_NOW), alert_rules.dead_letters, about=SubjectKind.SITE,
          needs=_RESULTS,
          metrics=(
              MetricRule("GossamerDeadLettersGrow",
                         'sum(increase(gossamer_pages_total{outcome="dead"}[$window])) >= $threshold',
                         "{{ $value | humanize }} pages were given up: gossamer dead list."),
          )),
    Alert("workers", "Workers sent no heartbeat, or fewer are alive than there should be.",
          "Look at the machine: memory, disk, network. Their pages go back to the queue by themselves; "
          "start them again.",
          AlertTerms(threshold=1, wait=_MINUTE, severity=_CRITICAL), alert_rules.workers, about=SubjectKind.WORKERS,
          metrics=(
              MetricRule("GossamerWorkersMissing", 'max(gossamer_workers{state="missing"}) >= $threshold',
                         "{{ $value }} workers sent no heartbeat: gossamer workers."),
          )),
    Alert("proxies", "Proxies of a pool rest or fail, or its list cannot be read.",
          "gossamer proxies says why; gossamer proxies test tries each; ask the provider, or add proxies.",
          AlertTerms(threshold=0.5, minimum=1), alert_rules.proxies, about=SubjectKind.POOL),
    Alert("quality", "A smaller share of items is faultless than on the days before.",
          "gossamer quality names the fields; fix the spider, then gossamer reparse parses the stored pages again.",
          AlertTerms(threshold=0.1, window=7 * 24 * _HOUR, minimum=50), alert_rules.quality, about=SubjectKind.SPIDER,
          sampled=True, needs=_RESULTS,
          metrics=(
              MetricRule("GossamerQualityDrops",
                         "max by (spider, type) (avg_over_time(gossamer_quality_score[$window])) - "
                         "min by (spider, type) (gossamer_quality_score) >= $threshold",
                         "Fewer items of {{ $labels.spider }} are faultless than before."),
          )),
    Alert("layout", "A site has a new layout: rules of a recipe find nothing any more.",
          "gossamer heal SPIDER shows the evidence, --apply takes the new rules into use, --undo leaves them again.",
          AlertTerms(wait=_NOW), alert_rules.layout, about=SubjectKind.SPIDER, needs=_RESULTS),
    Alert("disk", "A disk fills up.",
          "gossamer disk shows what grows; gossamer prune frees space, [retention] does so regularly.",
          AlertTerms(threshold=0.1, window=timedelta(days=3), wait=_NOW), alert_rules.disk, about=SubjectKind.STORE),
    Alert("budget", "Little is left of a budget.",
          "gossamer routes shows what was spent; raise the budget, or let the pages wait until tomorrow.",
          AlertTerms(threshold=0.1, wait=_NOW), alert_rules.budget, about=SubjectKind.BUDGET,
          metrics=(
              MetricRule("GossamerBudgetNearEnd", "min by (scope) (gossamer_budget_remaining_ratio) <= $threshold",
                         "{{ $value | humanizePercentage }} of the budget {{ $labels.scope }} is left."),
          )),
    Alert("schedules", "A run is late, or could not start.",
          "gossamer schedule show NAME shows the reason. A run that is late needs a scheduler: gossamer workers.",
          AlertTerms(threshold=300, wait=_MINUTE), alert_rules.schedules, about=SubjectKind.SCHEDULE,
          metrics=(
              MetricRule("GossamerScheduleLate", "max(gossamer_schedule_lag_seconds) >= $threshold",
                         "A run is late by {{ $value | humanizeDuration }}. Is a scheduler running?"),
          )),
    Alert("callbacks", "Callbacks were given up: clients were not told that their jobs ended.",
          "gossamer callbacks list --state failed; fix the receiver, then gossamer callbacks replay ID.",
          AlertTerms(window=_HOUR, minimum=1, wait=_NOW), alert_rules.callbacks, about=SubjectKind.RECEIVER,
          sampled=True),
    Alert("logins", "A session cannot log in.",
          "gossamer sessions shows the error; fix login() or the password, then gossamer sessions login SPIDER.",
          AlertTerms(minimum=1, wait=_NOW), alert_rules.logins, about=SubjectKind.SESSION),
    Alert("outputs", "An output has stopped, does not write what has changed, or its target refuses rows.",
          "gossamer output show NAME says why; gossamer output check NAME tries the target, gossamer "
          "output resume NAME.",
          AlertTerms(threshold=100, window=15 * _MINUTE, wait=_MINUTE), alert_rules.outputs, about=SubjectKind.OUTPUT,
          needs=_RESULTS,
          metrics=(
              MetricRule("GossamerOutputLags",
                         "max by (output) (gossamer_output_lag_changes) and "  # what the summary says
                         "max by (output) (min_over_time(gossamer_output_lag_changes[$window])) > 0 and "
                         "max by (output) (deriv(gossamer_output_lag_changes[$window])) >= 0",
                         "The output {{ $labels.output }} does not catch up: "
                         "{{ $value | humanize }} changes are not written."),
          )),
    Alert("stores", "State, records or archive does not answer, or has no room.",
          "gossamer doctor; start the server or make room. Results wait on the disks of workers meanwhile.",
          AlertTerms(wait=_MINUTE, severity=_CRITICAL), alert_rules.stores, about=SubjectKind.STORE, needs=(),
          metrics=(
              MetricRule("GossamerStoreAway", "min by (store) (gossamer_store_up) == 0",
                         "The store {{ $labels.store }} does not answer."),
          )),
    Alert("spool", "Results wait on a disk and no worker stores them, or the disk is nearly full.",
          "gossamer spool lists them; start a worker on that machine, or run gossamer spool drain there.",
          AlertTerms(threshold=0.8, wait=10 * _MINUTE), alert_rules.spool, about=SubjectKind.MACHINE),
    Alert("figures", "Work is done but no figures arrive, or a part of the situation cannot be read.",
          "Alerts may be blind: look at the logs of workers and scheduler; gossamer doctor.",
          AlertTerms(threshold=300, wait=5 * _MINUTE), alert_rules.figures, needs=_RESULTS),
)  # fmt: skip
ALERTS: dict[str, Alert] = {one.name: one for one in _DECLARED}
USUAL: dict[str, AlertTerms] = {name: one.terms for name, one in ALERTS.items()}  # the default terms


def alert_hint(name: str) -> str:
    """Which alert somebody meant who wrote a name that does not exist."""
    near = difflib.get_close_matches(name, ALERTS, n=1, cutoff=0.5)
    return f"Did you mean {near[0]}?" if near else f"There are {', '.join(ALERTS)}."


def findings(situation: Situation, terms: Mapping[str, AlertTerms]) -> dict[str, Findings | None]:
    """What is wrong, by alert and subject; None if unknown. Consequences of an unavailable store are unknown."""
    return {
        name: None
        if any(store in situation.stores for store in ALERTS[name].needs)
        else ALERTS[name].rule(situation, own)
        for name, own in terms.items()
    }
