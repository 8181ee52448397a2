"""The lease: which queue is next, what its site allows, which tasks it gives. Runs inside a transaction.

Cost does not grow with the queue: ready queues are read best first by index, lane by lane, sleeping ones are found by
their wake-up time, and queues that wait for a slot are not looked at until one is given back.

A worker that settles pages and leases others does both in one transaction, so no other worker ever finds the slots that
it gave back. A worker that has got nothing for a while therefore notes at the sites that it waits for that it is
starved, and a worker with more than an even share of a site's slots takes no more there until the starved one was
served.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import msgspec

from ...frontier.contract import SENT, LeaseBatch
from ...frontier.learned_pace import LearnedPace, longest
from ...frontier.politeness import GIVE_WAY, HEAD_START, REST_LOOK, TURN, TermsFor, after_start, earliest_start
from ...frontier.turns import LOOK, TurnClaim, Want, after_asking, after_refusal, is_left_to, makes_way
from ...model.task import NO_ROOM, NO_ROOM_FROM, Away, Lease, Pace, Task
from .lease_recovery import TOO_FAR, LeaseRecovery
from .queue_rows import MICROSECONDS, URL, WITH_URL, CountChanges, JobRow, QueueRows, extras_of
from .turns import believable, owed_turns

PROMOTED_AT_ONCE = 500
PAUSED = timedelta(seconds=1)  # how often a worker checks whether a paused job was resumed
STARVED_AFTER = 0.2  # seconds without a task
STARVED_FOR = 1.0  # seconds; a living worker repeats the note by then
STARVED_LOOK = timedelta(milliseconds=50)  # how often it asks
STARVED_SITES = 10  # at most
CLAIM_KEPT = 0.25  # seconds by which a claim may be out of date before it is written again

_TASKS = f"""
SELECT urls.number, {URL}, fingerprint, name.text, priority, depth, attempts, max_attempts, created_at, fetcher, extras,
    token, deliveries, reason, changed_at
FROM urls INDEXED BY urls_queued {WITH_URL} JOIN texts AS name ON name.number = urls.kind
WHERE job = ? AND site = ? AND fetcher IS ? AND state = 'q' ORDER BY priority DESC, changed_at, urls.number
LIMIT ?"""  # noqa: S608 - our own names

_READY = """
SELECT site, priority, lane, turn FROM queues WHERE job = ? AND lane = ? AND state = 'ready'
ORDER BY priority DESC, turn LIMIT ?"""

_DUE = """
SELECT number, site, fetcher, priority FROM urls WHERE job = ? AND state = 'w' AND due_at <= ?
ORDER BY due_at LIMIT ?"""
_POSTPONED = """
SELECT number, site, fetcher, priority FROM urls WHERE job = ? AND state = 'w' AND due_at >= ?
ORDER BY due_at, number LIMIT ?"""
_QUEUE_UP = """
UPDATE urls SET state = 'q', due_at = NULL, reason = iif(reason = ?, '', reason), changed_at = ? WHERE number = ?"""
_GRANT = "UPDATE urls SET state = 'l', token = ?, deliveries = deliveries + 1, changed_at = ? WHERE number = ?"
_HAND_OUT = "INSERT OR REPLACE INTO leases (url, token, until, worker) VALUES (?, ?, ?, ?)"
_SITE = """
SELECT name, next_at, rest_until, asked_interval, in_flight, holder, latest, learned_interval, refused_at, starved,
    starved_at, wanted, wanted_turn, wanted_since, offered_at, wanted_priority, claim, claim_priority, claim_until,
    claim_run, away_host, away_reason, away_since, strikes, given_up_until, kept_until
FROM sites WHERE number = ?"""
_VISIT = """
UPDATE sites SET in_flight = in_flight + ?1, next_at = ?2, holder = ?3, latest = ?4, wanted = nullif(wanted, ?4),
    starved = nullif(starved, ?6), claim = ?7, claim_priority = ?8, claim_until = ?9, claim_run = ?10
WHERE number = ?5"""
_CLAIM = "UPDATE sites SET claim = ?, claim_priority = ?, claim_until = ?, claim_run = ? WHERE number = ?"
_NO_CLAIM = (None, 0, 0.0, 0)
_OWN_PACE = """
INSERT INTO job_paces (job, site, next_at, interval) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET next_at = excluded.next_at, interval = excluded.interval"""
# The job's leases at the site, and another worker that has one.
_OWN_LEASES = """
SELECT count(*), max(iif(worker = ?, NULL, worker)) FROM leases JOIN urls ON urls.number = leases.url
WHERE job = ? AND site = ?"""
_STARVE = """
UPDATE sites SET starved = ?, starved_at = ? WHERE number IN (
    SELECT site FROM queues INDEXED BY queues_slotless WHERE state IN ('full', 'held') AND state = 'full' AND job = ?
    AND (? OR lane IN (SELECT value FROM json_each(?))) LIMIT ?)"""
_HOLDERS = """
SELECT worker, count(*) FROM leases JOIN urls ON urls.number = leases.url WHERE site = ? GROUP BY worker"""
_WANT = """
UPDATE sites SET wanted = ?, wanted_turn = ?, wanted_since = ?, offered_at = ?, wanted_priority = ? WHERE number = ?"""
_PARK = """
UPDATE queues SET state = ?, wake_at = ?, held_for = ?, refused = 1 WHERE job = ? AND site = ? AND lane = ?"""
_SERVED = "UPDATE queues SET state = ?, priority = ?, turn = ?, refused = 0 WHERE job = ? AND site = ? AND lane = ?"

# Steps from one lane to the next along the index: the cost grows with the lanes, not with their queues.
_LANES = """
WITH RECURSIVE lanes (lane) AS (
    SELECT min(lane) FROM queues WHERE job = :job AND state = 'ready'
    UNION ALL
    SELECT (SELECT min(lane) FROM queues WHERE job = :job AND state = 'ready' AND lane > lanes.lane)
    FROM lanes WHERE lane IS NOT NULL)
SELECT lane FROM lanes WHERE lane IS NOT NULL"""


class Grants:
    """The grants of one round over several sites, written together: one statement for each would cost more."""

    def __init__(self) -> None:
        self.leases: list[Lease] = []
        self.sites: list[tuple[int | float | str | None, ...]] = []
        self.paces: list[tuple[int, int, float, float]] = []  # of jobs with their own rate
        self.queues: list[tuple[str, int, int, int, int, str]] = []

    def write(self, connection: sqlite3.Connection, worker: str, now: float) -> None:
        connection.executemany(
            _HAND_OUT, [(lease.task.id, lease.token, lease.expires_at, worker) for lease in self.leases]
        )
        connection.executemany(_GRANT, [(lease.token, now, lease.task.id) for lease in self.leases])
        connection.executemany(_VISIT, self.sites)
        connection.executemany(_SERVED, self.queues)
        if self.paces:
            connection.executemany(_OWN_PACE, self.paces)


class Contest(msgspec.Struct, frozen=True):
    """What a site notes about the jobs that want it (frontier/turns.py)."""

    site: int
    want: Want | None
    latest: int | None
    claim: TurnClaim | None


class SqliteTaskDispatcher:
    """Hands out tasks. `is_gone(worker)` is True if the worker's process certainly no longer exists."""

    def __init__(
        self, queue_rows: QueueRows, *, duration: timedelta, terms_for: TermsFor, is_gone: Callable[[str], bool]
    ) -> None:
        self._rows = queue_rows
        self._duration = duration.total_seconds()
        self._terms_for = terms_for
        self._served_at: dict[str, float] = {}  # by worker
        self._recovery = LeaseRecovery(queue_rows, duration=self._duration, terms_for=terms_for, is_gone=is_gone)

    def lease(
        self, connection: sqlite3.Connection, job: JobRow, worker: str, n: int, lanes: frozenset[str] | None, now: float
    ) -> LeaseBatch:
        self._recovery.recover(connection, worker, now)
        state, paused, sealed, queued, waiting, leased, used, postponed, terms = connection.execute(
            "SELECT state, paused, sealed, queued, waiting, leased, done + unchanged + dead + leased - redirected, "
            "postponed, terms FROM jobs WHERE number = ?",
            (job.number,),
        ).fetchone()
        if hash(terms) != job.mark:  # the job was resumed, perhaps with another limit
            job = self._rows.renew(connection, job.id)
        if state != "running":
            return LeaseBatch(drained=True)
        room = n if job.terms.limit is None else min(n, job.terms.limit - used)
        if room <= 0:
            return LeaseBatch(drained=leased == 0, wait=None)
        if sealed and not queued and not waiting and not leased:
            return LeaseBatch(drained=True)
        if paused:
            return LeaseBatch(wait=PAUSED)
        if waiting > postponed:
            self._promote(connection, job, now)
        if postponed:
            self._make_room(connection, job, queued + waiting - postponed, now)
        connection.execute(
            "UPDATE queues SET state = 'ready', wake_at = NULL WHERE job = ? AND state = 'sleeping' AND wake_at <= ?",
            (job.number, now),
        )
        connection.execute(
            "UPDATE queues SET state = 'ready', held_for = NULL WHERE state = 'held' AND held_for = ?", (worker,)
        )
        leases = self._serve_best(connection, job, worker, room, lanes, now)
        since = self._served_at.setdefault(worker, now)
        if leases:
            self._served_at[worker] = now
            CountChanges(queued=-len(leases), leased=len(leases)).write(connection, job.number)
            return LeaseBatch(leases=tuple(leases))
        wait = self._next_chance(connection, job, now)
        if not 0 <= now - since < STARVED_AFTER and self._starve(connection, job, worker, lanes, now):
            wait = STARVED_LOOK if wait is None else min(wait, STARVED_LOOK)
        return LeaseBatch(wait=wait)

    def _starve(
        self, connection: sqlite3.Connection, job: JobRow, worker: str, lanes: frozenset[str] | None, now: float
    ) -> bool:
        """Note at sites without a free slot that the worker waits for one. False if there is no such site."""
        served = msgspec.json.encode(sorted(lanes or ())).decode()
        noted = connection.execute(_STARVE, (worker, now, job.number, lanes is None, served, STARVED_SITES))
        return noted.rowcount > 0

    def _serve_best(
        self, connection: sqlite3.Connection, job: JobRow, worker: str, n: int, lanes: frozenset[str] | None, now: float
    ) -> list[Lease]:
        leases: list[Lease] = []
        left_alone: set[int] = set()  # sites whose free slots belong to another worker
        served = [lane for (lane,) in connection.execute(_LANES, {"job": job.number})] if lanes is None else list(lanes)
        while len(leases) < n:
            wanted = n - len(leases)
            ready = self._ready(connection, job, served, wanted + len(left_alone))
            if left_alone:
                ready = [queue for queue in ready if queue[0] not in left_alone]
            if not ready:
                break
            best = ready[0][1]
            tied: dict[int, list[str]] = {}
            for site, priority, lane, _ in ready:
                if priority == best:
                    tied.setdefault(site, []).append(lane)
            # A lone queue may give tasks below its best priority at once: no other queue has better ones.
            floor = best if len(ready) > 1 else None
            share = max(1, wanted // len(tied))
            round_ = Grants()
            for site, among in tied.items():
                left = wanted - len(round_.leases)
                if left <= 0:
                    break
                if lanes is not None and self._give_way(connection, job, site, lanes, now):
                    continue
                if not self._serve(connection, job, site, among, worker, min(share, left), floor, now, round_):
                    left_alone.add(site)
            round_.write(connection, worker, now)
            leases += round_.leases
        return leases

    def _ready(
        self, connection: sqlite3.Connection, job: JobRow, lanes: list[str], n: int
    ) -> list[tuple[int, int, str, int]]:
        """Site, priority, lane and turn of the best queues, for at most `n` sites."""
        if len(lanes) == 1:
            return connection.execute(_READY, (job.number, lanes[0], n)).fetchall()
        found = [connection.execute(_READY, (job.number, lane, n)).fetchall() for lane in lanes]
        ready, sites = [], set()
        for queue in sorted((one for queues in found for one in queues), key=lambda one: (-one[1], one[3])):
            sites.add(queue[0])
            if len(sites) > n:
                break
            ready.append(queue)
        return ready

    def _give_way(
        self, connection: sqlite3.Connection, job: JobRow, site: int, lanes: frozenset[str], now: float
    ) -> bool:
        """Whether a lane of other workers gets its turn at the site now: one that was refused, and was served before
        ours.

        A lane that could be served but is not requested while ours pause no longer has a waiting worker.
        """
        queues = connection.execute(
            "SELECT lane, refused, turn FROM queues WHERE job = ? AND site = ? AND state <> 'empty'", (job.number, site)
        ).fetchall()
        before = min(
            int((now - TURN.total_seconds()) * MICROSECONDS),
            *(turn - 1 for lane, _, turn in queues if lane in lanes),
        )
        others = [lane for lane, refused, turn in queues if refused and turn <= before and lane not in lanes]
        if not others:
            return False
        connection.executemany(
            "UPDATE queues SET refused = 0 WHERE job = ? AND site = ? AND lane = ? AND state = 'ready'",
            [(job.number, site, lane) for lane in others],
        )
        self._leave_alone(connection, job, site, lanes, now + GIVE_WAY.total_seconds())
        return True

    def _serve(
        self,
        connection: sqlite3.Connection,
        job: JobRow,
        site: int,
        lanes: list[str],
        worker: str,
        n: int,
        floor: int | None,
        now: float,
        grants: Grants,
    ) -> bool:
        """Take up to `n` tasks of one site, if the site allows; otherwise park its queues until they can be served.
        False if they are left as they are, because a starved worker comes first."""
        (name, next_at, rest_until, asked, in_flight, holder, latest, learned, refused_at, starved, starved_at,
         *row) = connection.execute(_SITE, (site,)).fetchone()  # fmt: skip
        if learned is not None:
            asked = longest(asked, LearnedPace(interval=learned, refused_at=refused_at).now(now))
        want, claims = row[:5], row[5:9]
        away_host, away_reason, away_since, strikes, given_up_until, kept_until = row[9:]
        given_up = given_up_until > now
        away = Away(away_host, away_reason, away_since, given_up) if strikes or given_up else None
        buries = given_up and bool(away_host)  # no request is expected: the pacer handles pages of other hosts
        noted = Want(*want) if want[0] is not None else None
        claim = TurnClaim(*claims) if claims[0] is not None else None
        contest = Contest(site, noted, latest, claim)
        terms, priority = self._terms_for(name).under(job.terms.politeness), job.terms.priority
        if terms.rests:
            rest_until = max(rest_until, now + REST_LOOK.total_seconds())
        if rest_until > now:
            self._park(connection, job, site, lanes, "sleeping", wake_at=rest_until)
            return True
        most = 1 if strikes else terms.concurrency  # one task at a time finds out whether the site is back
        if most is not None:
            n = min(n, most - in_flight)
            if n <= 0:
                self._refuse(connection, job, contest, now, back_at=now)
                self._park(connection, job, site, lanes, "full")
                return True
            if starved is not None and starved != worker and 0 <= now - starved_at < STARVED_FOR:
                n = min(n, self._share(connection, site, worker, starved, most))
                if n <= 0:
                    return False
        interval, burst = terms.spacing(asked), terms.burst_under(asked)
        own = terms.own_interval.total_seconds() if terms.own_interval is not None else None
        if own is not None and interval is not None and interval >= own:
            own = None  # the site itself asks for more
        if terms.own_concurrency is not None or (own is not None and interval is None):
            ours, other = connection.execute(_OWN_LEASES, (worker, job.number, site)).fetchone()
            n = min(n, terms.own_concurrency - ours) if terms.own_concurrency is not None else n
            if n <= 0:
                self._park(connection, job, site, lanes, "full")
                return True
            if own is not None and other is not None:  # one pacer at a time spaces the requests of the job exactly
                self._park(connection, job, site, lanes, "held", held_for=other)
                return True
        if interval is not None:
            if now < kept_until <= now + interval + TOO_FAR.total_seconds():
                self._park(connection, job, site, lanes, "sleeping", wake_at=kept_until)
                return True
            if in_flight and holder != worker and owed_turns(connection, site):
                self._refuse(connection, job, contest, now, back_at=now)
                self._park(connection, job, site, lanes, "held", held_for=holder)
                return True
            next_at = believable(next_at, interval * burst, now)
            turn = earliest_start(next_at, interval=interval, burst=burst) - HEAD_START.total_seconds()
            if turn > now and not buries:
                self._contend(connection, job, contest, now, back_at=turn)
                self._park(connection, job, site, lanes, "sleeping", wake_at=turn)
                return True
            n = _room(n, turn, interval, burst, now) if not buries else n
        own_next = 0.0
        if own is not None:
            found = connection.execute(
                "SELECT next_at FROM job_paces WHERE job = ? AND site = ?", (job.number, site)
            ).fetchone()
            own_next = believable(found[0], own * burst, now) if found is not None else 0.0
            turn = earliest_start(own_next, interval=own, burst=burst) - HEAD_START.total_seconds()
            if turn > now and not buries:
                self._park(connection, job, site, lanes, "sleeping", wake_at=turn)
                return True
            n = _room(n, turn, own, burst, now) if not buries else n
        if is_left_to(claim, job=job.number, priority=priority, now=now):
            self._refuse(connection, job, contest, now, back_at=now)
            self._leave_alone(connection, job, site, lanes, now + LOOK.total_seconds())
            return True
        is_free = noted is None or interval is None or not in_flight or not owed_turns(connection, site)
        others_first, want_now = makes_way(noted, claim, job=job.number, priority=priority, is_free=is_free, now=now)
        self._want(connection, site, noted, want_now)
        if others_first:
            pause = LOOK if want_now is not None and want_now.priority < priority else GIVE_WAY
            self._claim(connection, job, contest, now, now)
            self._leave_alone(connection, job, site, lanes, now + pause.total_seconds())
            return True
        if claim is not None and claim.priority > priority and claim.until > now:
            n = 1  # its share
        rows = self._tasks(connection, job, site, lanes, n + 1)
        taken = [row for row in rows[:n] if floor is None or row[4] >= floor]
        for row in taken:
            pace = None
            after = after_start(next_at, start=now, interval=interval) if interval is not None else now
            if own is not None:
                gap = own - (interval or 0.0)
                own_next = max(after_start(own_next, start=now, interval=own), after + gap)
                pace = Pace(own, burst, own_next - now, gap)
            elif interval is not None:
                pace = Pace(interval, burst, after - now)
            next_at = next_at if buries or interval is None else after
            grants.leases.append(self._lease_of(job, name, row, now, pace, away))
        if own is not None and not buries:
            grants.paces.append((job.number, site, own_next, own))
        paced_by, latest = worker if interval is not None else None, job.number if taken else latest
        rest = rows[len(taken) :]
        back: float | None = None
        if rest and interval is not None:
            back = max(
                earliest_start(next_at, interval=interval, burst=burst),
                earliest_start(own_next, interval=own, burst=burst) if own is not None else 0.0,
            )
        elif rest and most is not None and in_flight + len(taken) >= most:
            back = now
        claim = after_asking(claim, job=job.number, priority=priority, back_at=back, served=len(taken), now=now)
        claimed = msgspec.structs.astuple(claim) if claim is not None else _NO_CLAIM
        grants.sites.append((len(taken), next_at, paced_by, latest, site, worker, *claimed))
        for lane in lanes:
            left = rest if len(lanes) == 1 else [row for row in rest if (row[9] or "") == lane]
            state, best = ("ready", left[0][4]) if left else ("empty", 0)
            grants.queues.append((state, best, int(now * MICROSECONDS), job.number, site, lane))
        return True

    def _share(self, connection: sqlite3.Connection, site: int, worker: str, starved: str, slots: int) -> int:
        """How many slots of a site a worker may still take while another is starved: at least one each."""
        held: dict[str, int] = dict(connection.execute(_HOLDERS, (site,)).fetchall())
        return max(1, slots // len(held.keys() | {worker, starved})) - held.get(worker, 0)

    def _tasks(
        self, connection: sqlite3.Connection, job: JobRow, site: int, lanes: list[str], n: int
    ) -> list[tuple[Any, ...]]:
        """The best `n` tasks of each lane, best first."""
        if len(lanes) == 1:
            return connection.execute(_TASKS, (job.number, site, lanes[0] or None, n)).fetchall()
        found = [connection.execute(_TASKS, (job.number, site, lane or None, n)).fetchall() for lane in lanes]
        return sorted((row for rows in found for row in rows), key=lambda row: (-row[4], row[-1], row[0]))

    def _lease_of(
        self, job: JobRow, site: str, row: tuple[Any, ...], now: float, pace: Pace | None, away: Away | None
    ) -> Lease:
        # Any: the types of a row are those of the schema, which is STRICT.
        (number, url, fingerprint, kind, priority, depth, attempts, max_attempts, created_at, fetcher, text, token,
         deliveries, reason, _) = row  # fmt: skip
        extras = extras_of(text)
        task = Task(
            id=number,
            job=job.id,
            url=url,
            fingerprint=fingerprint,
            site=site,
            kind=kind,
            priority=priority,
            depth=depth,
            attempt=attempts,
            max_attempts=max_attempts,
            created_at=created_at,
            data=extras.data,
            redirects=extras.redirects,
            fetcher=fetcher,
            proxy_pool=extras.proxy_pool,
            country=extras.country,
            how=extras.how,
        )
        return Lease(
            task=task,
            token=token + 1,
            delivery=deliveries + 1,
            expires_at=now + self._duration,
            pace=pace,
            away=away,
            sent=reason == SENT,
        )

    def _park(
        self,
        connection: sqlite3.Connection,
        job: JobRow,
        site: int,
        lanes: list[str],
        state: str,
        *,
        wake_at: float | None = None,
        held_for: str | None = None,
    ) -> None:
        connection.executemany(_PARK, [(state, wake_at, held_for, job.number, site, lane) for lane in lanes])

    def _leave_alone(
        self, connection: sqlite3.Connection, job: JobRow, site: int, lanes: Iterable[str], until: float
    ) -> None:
        """Put the queues to sleep for a moment, so that another lane or job can have the site."""
        connection.executemany(
            "UPDATE queues SET state = 'sleeping', wake_at = ? "
            "WHERE job = ? AND site = ? AND lane = ? AND state = 'ready'",
            [(until, job.number, site, lane) for lane in lanes],
        )

    def _contend(
        self, connection: sqlite3.Connection, job: JobRow, contest: Contest, now: float, *, back_at: float
    ) -> None:
        """The job must wait for the site's pace, and so must the others: note who goes first."""
        claim = contest.claim
        if claim is not None and claim.job != job.number and claim.priority > job.terms.priority:
            self._refuse(connection, job, contest, now, back_at=back_at)
        elif contest.latest != job.number or contest.want is not None:
            self._claim(connection, job, contest, now, back_at)

    def _refuse(
        self, connection: sqlite3.Connection, job: JobRow, contest: Contest, now: float, *, back_at: float
    ) -> None:
        """Note that the job cannot have the site, because another job has it."""
        (turn,) = connection.execute(
            "SELECT max(turn) FROM queues WHERE job = ? AND site = ?", (job.number, contest.site)
        ).fetchone()
        want = after_refusal(
            contest.want, job=job.number, priority=job.terms.priority, served_at=turn / MICROSECONDS,
            latest=contest.latest, now=now,
        )  # fmt: skip
        self._want(connection, contest.site, contest.want, want)
        if contest.latest != job.number or want is not None:
            self._claim(connection, job, contest, now, back_at)

    def _claim(self, connection: sqlite3.Connection, job: JobRow, contest: Contest, now: float, back_at: float) -> None:
        before = contest.claim
        after = after_asking(before, job=job.number, priority=job.terms.priority, back_at=back_at, served=0, now=now)
        if after is None or (
            before is not None and before.job == after.job and abs(before.until - after.until) < CLAIM_KEPT
        ):
            return
        connection.execute(_CLAIM, (*msgspec.structs.astuple(after), contest.site))

    def _want(self, connection: sqlite3.Connection, site: int, before: Want | None, after: Want | None) -> None:
        if after is None and before is not None:
            connection.execute(_WANT, (None, None, None, None, 0, site))
        elif after is not None and after != before:
            connection.execute(_WANT, (*msgspec.structs.astuple(after), site))

    def _promote(self, connection: sqlite3.Connection, job: JobRow, now: float) -> None:
        """Return due tasks to their queue, behind tasks of equal priority."""
        self._queue_up(connection, job, _DUE, (job.number, now, PROMOTED_AT_ONCE), now)

    def _make_room(self, connection: sqlite3.Connection, job: JobRow, active: int, now: float) -> None:
        """Queue links that wait for room, the best ones first."""
        bound = job.terms.max_queued
        room = PROMOTED_AT_ONCE if bound is None else min(PROMOTED_AT_ONCE, bound - active)
        if room > 0:
            entered = self._queue_up(connection, job, _POSTPONED, (job.number, NO_ROOM_FROM, room), now)
            CountChanges(postponed=-entered).write(connection, job.number)

    def _queue_up(
        self, connection: sqlite3.Connection, job: JobRow, which: str, values: tuple[float, ...], now: float
    ) -> int:
        """Put waiting tasks into their queues; return how many."""
        due = connection.execute(which, values).fetchall()
        connection.executemany(_QUEUE_UP, [(NO_ROOM, now, number) for number, *_ in due])
        for _, site, lane, priority in due:
            self._rows.requeue(connection, job.number, site, lane, priority, now)
        CountChanges(waiting=-len(due), queued=len(due)).write(connection, job.number)
        return len(due)

    def _next_chance(self, connection: sqlite3.Connection, job: JobRow, now: float) -> timedelta | None:
        row = connection.execute(
            "SELECT min(at) FROM ("
            " SELECT min(wake_at) AS at FROM queues WHERE job = :job AND state = 'sleeping'"
            " UNION ALL SELECT min(due_at) FROM urls WHERE job = :job AND state = 'w' AND due_at < :never"
            " UNION ALL SELECT min(until) FROM leases)",
            {"job": job.number, "never": NO_ROOM_FROM},
        ).fetchone()
        return None if row[0] is None else timedelta(seconds=max(0.0, row[0] - now))


def _room(n: int, turn: float, interval: float, burst: int, now: float) -> int:
    """How many of `n` requests a bucket allows whose next turn was at `turn`."""
    n = min(n, burst)
    return min(n, int((now - turn) / interval) + 1) if interval > 0 else n
