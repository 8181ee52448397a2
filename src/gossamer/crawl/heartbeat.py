"""The heartbeat of a worker process: a card in the state, renewed while the process lives, removed when it ends.

With each beat the machine's clock is compared with the state's: one that is off is reported, and a worker whose clock
is wrong by minutes takes no work until it is right again.
How it fails: while the state does not answer, the card looks stale to others; the work goes on. Any other error is
reported once. How it recovers: with the next beat. A process that dies leaves its card behind; the first process that
beats an hour later removes it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, Self

import msgspec

from .. import __version__
from ..clock import Clock, machine_ahead
from ..errors import BadState, GossamerError, Transient
from ..frontier.contract import DRAIN, Fate, WorkerBook, WorkerCard
from ..model import events
from ..model.job import JobPace
from ..units import span

BEAT = timedelta(seconds=5)
MISSING_AFTER = timedelta(seconds=20)  # a card this old belongs to a worker that died or was cut off
FORGET_AFTER = timedelta(hours=1)
PACE_OVER = 12  # beats (one minute) over which `pace` and `busy` on the card are measured
MOST_JOBS = 100  # whose pages are counted apart
FORGET_EVERY = 12  # beats: all cards are scanned once a minute
CLOCK_OFF = 5.0  # seconds between this machine's clock and the state's that are reported
CLOCK_WRONG = 300.0  # seconds at which a worker takes no work: certificates and dates would be judged wrongly
SIGN_OFF_WITHIN = timedelta(seconds=2)


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is doing. `state` is working, idle, draining, storing, spool full, archive full or set aside.

    `slots` is how many pages it may have in flight; `serves` names the routes or kinds it works on, "" for all.
    """

    job: str = ""
    state: str = "working"
    in_flight: int = 0
    slots: int = 0
    serves: str = ""


def clock_is_wrong(clock: Clock) -> bool:
    """Whether this machine's clock is so far from the state's that it must not take work."""
    return abs(machine_ahead(clock)) > CLOCK_WRONG


def clock_in_words(ahead: float) -> str:
    """For people: `3 d ahead of the state's`, say."""
    return f"{span(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} the state's"


class _Look(NamedTuple):
    """The measurements of one beat."""

    at: float  # on the monotonic clock
    cpu: float  # seconds used so far
    done: int  # pages so far
    by_job: dict[str, tuple[int, int]]  # pages settled and found so far
    full: float  # share of its slots in use


class Heartbeat:
    """Beats inside `async with`. As an EventSink it counts the pages that this process settles. `drain` is called when
    an operator asks this worker to drain or to restart (WorkerBook.ask_to_drain). `fate_of` says of a worker what is
    known on this machine."""

    def __init__(
        self,
        book: WorkerBook,
        clock: Clock,
        *,
        name: str,
        vitals: Callable[[], Vitals],
        troubles: events.EventSink | None = None,
        drain: Callable[[], None] = lambda: None,
        fate_of: Callable[[str], Fate] = lambda name: Fate.UNKNOWN,
    ) -> None:
        self._book = book
        self._clock = clock
        self._name = name
        self._vitals = vitals
        self._troubles = troubles or events.NullSink()
        self._drain = drain
        self._fate_of = fate_of
        self._frozen = ""
        self._instead_of = ""
        self.asked = ""  # what an operator wants of this worker, DRAIN or RESTART; or it must end by itself
        self._trouble = ""  # the last error; reported once until a beat succeeds
        self._clock_fault = ""  # what was last reported about this machine's clock
        self._started_at = clock.now()
        self._done = 0
        self._by_job: dict[str, tuple[int, int]] = {}  # pages settled and found
        first = _Look(clock.monotonic(), time.process_time(), 0, {}, 0.0)
        self._looks = deque([first], maxlen=PACE_OVER + 1)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="heartbeat")
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        with suppress(GossamerError, TimeoutError):  # then the card becomes stale
            async with asyncio.timeout(SIGN_OFF_WITHIN.total_seconds()):
                await self._book.sign_off(self._name)

    hears = (events.Completed, events.Buried)

    def emit(self, event: events.Event) -> None:
        if isinstance(event, self.hears):
            self._done += 1
            settled, found = self._by_job.get(event.job, (0, 0))
            self._by_job[event.job] = settled + 1, found + (event.added if isinstance(event, events.Completed) else 0)

    async def _run(self) -> None:
        beats = 0
        while True:
            try:
                if asked := await self._book.beat(self._card()):
                    self._leave(asked)
                if beats % FORGET_EVERY == 0:
                    await self._book.forget(self._clock.now() - FORGET_AFTER.total_seconds())
                    await self._look_at_others()
                beats += 1
                self._trouble = ""
                self._check_clock()
            except Transient:
                pass  # the worker itself reports that the state does not answer
            except BadState as error:  # a newer version has migrated the state; this one must not write to it
                self._tell(f"{error} This worker finishes the pages it has in progress, and ends.")
                self._leave(DRAIN)
            except Exception as error:  # any error: without a heartbeat a living worker would look dead
                self._tell(str(error) if isinstance(error, GossamerError) else f"{type(error).__name__}: {error}")
            await self._clock.sleep(BEAT.total_seconds())

    def _check_clock(self) -> None:
        """Report once that this machine's clock is off, and once that it is right again."""
        ahead = machine_ahead(self._clock)
        fault = "wrong" if clock_is_wrong(self._clock) else "off" if abs(ahead) > CLOCK_OFF else ""
        if fault == self._clock_fault:
            return
        self._clock_fault = fault
        words = f"The clock of this machine is {clock_in_words(ahead)}. Set it."
        if fault == "wrong":
            words += " Until then this worker takes no work: it would take good certificates for expired ones."
        elif not fault:
            words = "The clock of this machine is right again."
        self._troubles.emit(events.Trouble(at=self._clock.now(), stage="clock", message=words))

    async def _look_at_others(self) -> None:
        """Note which silent workers of this machine live, and remove the cards of those that others have replaced."""
        now, cards = self._clock.now(), await self._book.workers()
        silent = [card for card in cards if card.name != self._name and is_silent(card, now)]
        fates = {card.name: self._fate_of(card.name) for card in silent}
        self._frozen = ",".join(name for name, fate in fates.items() if fate is Fate.ALIVE)
        if not self._instead_of:
            mine = next((lost for lost, by in replaced(cards, now, self._fate_of).items() if by == self._name), "")
            if mine:
                self._instead_of = mine
                await self._book.beat(self._card())  # first, so that no other card is removed in its place
                await self._book.sign_off(mine)

    def _leave(self, asked: str) -> None:
        """Drain; for DRAIN, no other worker takes its place."""
        if not self.asked:
            self.asked = asked
            self._drain()

    def _tell(self, words: str) -> None:
        if words != self._trouble:
            self._trouble = words
            self._troubles.emit(events.Trouble(at=self._clock.now(), stage="heart", message=words))

    def _card(self) -> WorkerCard:
        vitals = self._vitals()
        before = self._looks[-1]
        full = vitals.in_flight / vitals.slots if vitals.slots else 0.0
        look = _Look(self._clock.monotonic(), time.process_time(), self._done, dict(self._by_job), full)
        self._looks.append(look)
        oldest = self._looks[0]
        seconds = look.at - oldest.at
        paces = {job: _pace(oldest.by_job.get(job, (0, 0)), now, seconds) for job, now in look.by_job.items()}
        while len(self._by_job) > MOST_JOBS:
            del self._by_job[next(iter(self._by_job))]
        wrong = clock_is_wrong(self._clock)
        cores = _share(look.cpu - oldest.cpu, seconds)
        return WorkerCard(
            name=self._name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            started_at=self._started_at,
            seen_at=self._clock.now(),
            job=vitals.job,
            state="clock wrong" if wrong and vitals.state != "draining" else vitals.state,
            in_flight=vitals.in_flight,
            done=self._done,
            cpu=_share(look.cpu - before.cpu, look.at - before.at),
            memory=memory_in_use(),
            pace=_share(look.done - oldest.done, seconds),
            busy=max(cores, round(fmean(one.full for one in self._looks), 3)),
            serves=vitals.serves,
            frozen=self._frozen,
            instead_of=self._instead_of,
            clock_ahead=round(machine_ahead(self._clock), 3),
            paces={job: pace for job, pace in paces.items() if pace.settled},
        )


def is_silent(card: WorkerCard, now: float) -> bool:
    """Whether it has sent no heartbeat for so long that it counts as missing."""
    return now - card.seen_at > MISSING_AFTER.total_seconds()


def frozen_ones(cards: Iterable[WorkerCard]) -> set[str]:
    """Workers that live and send no heartbeat, as others on their machines have noticed."""
    return {name for card in cards for name in card.frozen.split(",") if name}


def replaced(cards: Sequence[WorkerCard], now: float, fate_of: Callable[[str], Fate]) -> dict[str, str]:
    """Workers that are gone, each with the one that took its place: it serves the same, started after the other's last
    heartbeat, and has replaced none before. One that is gone again stands for both."""
    frozen = frozen_ones(cards)
    fates = {card.name: fate_of(card.name) for card in cards}
    gone = [
        card
        for card in sorted(cards, key=lambda card: card.seen_at)
        if fates[card.name] is Fate.GONE
        or (fates[card.name] is Fate.UNKNOWN and is_silent(card, now) and card.name not in frozen)
    ]
    others = sorted((card for card in cards if not card.instead_of), key=lambda card: card.started_at)
    found: dict[str, str] = {}
    for card in gone:
        later = next((one for one in others if one.started_at > card.seen_at and one.serves == card.serves), None)
        if later is not None:
            others.remove(later)
            found[card.name] = later.name
    return found


def _pace(before: tuple[int, int], now: tuple[int, int], seconds: float) -> JobPace:
    # A job that was forgotten in between counts from nothing again.
    return JobPace(max(0, now[0] - before[0]), max(0, now[1] - before[1]), round(seconds, 3))


def _share(amount: float, seconds: float) -> float:
    return round(amount / seconds, 3) if seconds > 0 else 0.0


def memory_in_use() -> int:
    """Resident bytes of this process; the peak on systems that do not report the current value."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
