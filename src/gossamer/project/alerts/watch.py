"""The alert watch: examines the situation every few seconds and notifies people, in the process of the leading
scheduler.

What it does: `look` reads the situation, lets the rules judge it and writes all changes with their messages in one step
to the state. `deliver` sends these messages, to each channel in the order in which they were made.
How it fails: a leader whose term is over can neither write nor send: each try of a message is noted under its term
before it is sent. If a channel does not accept a message, it is sent again with growing pauses, for a day; later
messages to that channel wait.
How it recovers: the next leader finds all alerts and messages in the state and continues; a message whose sender died
is sent again with the same id.

An outage of the state itself cannot be stored in the state. The process that led when it began reports the outage and
its end; if that process dies meanwhile, nobody does. All other alerts keep their standing until then.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta

import msgspec

from ...clock import Backoff
from ...errors import GossamerError, LeaseLost, Transient
from ...model.alert import MOST_OPEN, AlertMemory, AlertState, AlertTerms, Finding, Notice, NoticeState, Standing
from ...model.alert_table import findings
from ...model.events import AlertChanged, EventSink, Trouble
from ...model.incident import Incident
from ...monitor.alerts import look
from ...schedule.alert_book import AlertStep
from ...schedule.leadership import Lead
from ...settings.alert_tables import terms_of
from ..open import Project
from .channels import TOTAL, Channels, Sent
from .readings import SAMPLE_EVERY, Readings

EVERY = timedelta(seconds=5)  # between two looks
PAUSES = Backoff(first=timedelta(seconds=5), longest=timedelta(minutes=30))  # after tries that failed
LONGEST_PAUSE = timedelta(hours=1)  # that a receiver may ask for
GIVE_UP = timedelta(days=1)  # after a message was made
MOST_AT_ONCE = 10_000  # messages read in one pass
STATE = "state"


class AlertWatch:
    """Watches and notifies while `run` runs and its scheduler leads."""

    def __init__(self, project: Project, lead: Lead, events: EventSink, *, channels: Channels | None = None) -> None:
        self._project = project
        self._desk = project.state.alerts
        self._lead = lead
        self._events = events
        self._channels = channels or Channels(project)
        self._readings = Readings(project)
        self._memory: AlertMemory | None = None  # None: not read from the state yet
        self._remembered_at = 0.0
        self._sending: dict[str, asyncio.Task[None]] = {}  # by channel
        self._apart: tuple[Standing, ...] = ()  # what the state cannot store: that it is away
        self._apart_notices: list[Notice] = []
        self._apart_incidents: list[Incident] = []
        self._told: set[str] = set()

    async def run(self) -> None:
        """Run until cancelled. Each obstacle is reported once."""
        async with self._readings:
            try:
                while True:
                    await self.turn()
                    await self._project.clock.sleep(EVERY.total_seconds())
            finally:
                await self.stop()

    async def once(self, within: timedelta) -> None:
        """One look, for a process that does not stay: due messages are sent within that time, or by the next leader."""
        async with self._readings:
            await self.turn()
            with suppress(TimeoutError):
                async with asyncio.timeout(within.total_seconds()):
                    await self.delivered()
            await self.stop()

    async def turn(self) -> None:
        """Look once and send the due messages."""
        if not self._lead.held:
            self._memory = None
            if self._apart or self._apart_notices:  # another process leads: the state is back
                await self._look_apart("")
                self._begin(self._apart_notices)
            return
        trouble = ""
        try:
            await self.look()
            self._told.clear()
        except LeaseLost:
            self._memory = None
            return
        except Transient as error:
            trouble = str(error)
        except Exception as error:  # a defect in Gossamer: the next look may succeed
            self._tell(f"Alerts could not be evaluated: {_words(error)}")
        await self._look_apart(trouble)
        try:
            await self.deliver()
        except Exception as error:  # as above: nothing may end the watch
            self._tell(f"Messages about alerts wait: {_words(error)}")

    async def stop(self) -> None:
        """Cancel deliveries in progress; the next leader sends them again."""
        tasks = list(self._sending.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- looking -----------------------------------------------------------------------------------------------

    async def look(self) -> AlertStep:
        """Raises LeaseLost, and Transient if the state does not answer: then the changes may not have been written."""
        term, now = self._lead.term, self._project.clock.now()
        terms = terms_of(self._project.settings.alerts)  # an admin may have set some by hand meanwhile
        memory = await self._desk.memory() if self._memory is None else self._memory
        known = await self._project.state.alerts.standings()
        silences = await self._project.state.alerts.silences()
        closings = await self._desk.closings()
        incidents = await self._desk.recent_incidents(now)
        situation, after = await self._readings.situation(terms, memory, known)
        step = look(
            terms,
            findings(situation, terms),
            known,
            silences=silences,
            closings=closings,
            incidents=incidents,
            channels=self._project.settings.channels,
            now=now,
        )
        if not 0 <= now - self._remembered_at < SAMPLE_EVERY.total_seconds():
            step = msgspec.structs.replace(step, memory=after)
        self._memory = None
        if step != AlertStep():
            await self._desk.settle(term, step)
        if step.memory is not None:
            self._remembered_at = now
        self._memory = after
        self._report(step)
        return step

    async def _look_apart(self, trouble: str) -> None:
        """Whether the state is away. Only this process keeps and reports it; its incident is stored when it is over."""
        usual = terms_of(self._project.settings.alerts)
        terms: dict[str, AlertTerms] = {name: one for name, one in usual.items() if name == "stores"}
        found = {"stores": {STATE: Finding(1.0, trouble)} if trouble else {}}
        if not trouble and not self._apart:
            return
        channels, now = self._project.settings.channels, self._project.clock.now()
        step = look(terms, found, self._apart, incidents=self._apart_incidents, channels=channels, now=now)
        changed = {one.id: one for one in step.incidents}
        self._apart_incidents = list(({one.id: one for one in self._apart_incidents} | changed).values())
        over = tuple(one for one in step.incidents if one.ended_at is not None)
        if over and not trouble and self._lead.held:
            with suppress(LeaseLost, Transient):  # it is lost with this process, as its message says
                await self._desk.settle(self._lead.term, AlertStep(incidents=over))
        gone = {one.key for one in step.standings} | set(step.forgotten)
        self._apart = (*(one for one in self._apart if one.key not in gone), *step.standings)
        self._apart = tuple(one for one in self._apart if one.state is not AlertState.RESOLVED or one.untold)
        self._apart_notices += step.notices
        self._report(step)

    def _report(self, step: AlertStep) -> None:
        for one in step.changes:
            self._events.emit(
                AlertChanged(
                    at=one.at,
                    alert=one.alert,
                    subject=one.subject,
                    state=one.state.value,
                    severity=one.severity.value,
                    message=one.words,
                )
            )

    # -- sending -----------------------------------------------------------------------------------------------

    async def deliver(self) -> None:
        """Start sending the due messages, one after the other in each channel."""
        busy = set(self._sending)  # a message that ends while the list is read is still in it, but no longer due
        due = await self._due()
        self._begin(one for one in (*self._apart_notices, *due) if one.channel not in busy)

    def _begin(self, notices: Iterable[Notice]) -> None:
        waiting: dict[str, list[Notice]] = {}
        for one in notices:
            waiting.setdefault(one.channel, []).append(one)
        for channel, some in waiting.items():
            if channel not in self._sending:
                sending = self._send_all(channel, some)
                self._sending[channel] = asyncio.create_task(sending, name=f"alerts to {channel}")

    async def delivered(self) -> None:
        """Return when no delivery is in progress."""
        while self._sending:
            await asyncio.wait(self._sending.values())

    async def _due(self) -> list[Notice]:
        try:
            return await self._desk.due(MOST_AT_ONCE)
        except Transient:
            if not self._apart_notices:
                raise
            return []  # the state is away, and exactly this is to be reported

    async def _send_all(self, channel: str, notices: list[Notice]) -> None:
        try:
            for place, one in enumerate(notices):
                crowded = len(notices) - place > MOST_OPEN
                if not crowded and one.next_at > self._project.clock.now():
                    return  # later messages wait: no "resolved" before its "fired"
                after = await (self._send_apart(one) if one in self._apart_notices else self._send(one, crowded))
                if after.state is NoticeState.DUE:
                    return
        except LeaseLost:
            return  # the next leader continues
        except Transient as error:
            self._tell(f"The result of a message about an alert could not be stored: {error}")
        except Exception as error:
            self._tell(f"A message about an alert could not be sent: {_words(error)}")
        finally:
            del self._sending[channel]

    async def _send(self, one: Notice, crowded: bool) -> Notice:
        """Send it once. Raises LeaseLost, before sending, if this process does not lead any more."""
        now = self._project.clock.now()
        if crowded:
            words = f"More than {MOST_OPEN} messages wait for this channel."
            over = msgspec.structs.replace(one, state=NoticeState.FAILED, ended_at=now, error=words)
            await self._desk.note(self._lead.term, over)
            return over
        # Noted before sending: this fails if the process does not lead any more.
        begun = msgspec.structs.replace(one, tries=one.tries + 1, next_at=now + TOTAL.total_seconds())
        await self._desk.note(self._lead.term, begun)
        after = self._judged(begun, await self._channels.send(begun))
        await self._desk.note(self._lead.term, after)
        return after

    async def _send_apart(self, one: Notice) -> Notice:
        """As `_send`, for messages that only this process holds."""
        begun = msgspec.structs.replace(one, tries=one.tries + 1)
        after = self._judged(begun, await self._channels.send(begun))
        place = self._apart_notices.index(one)
        self._apart_notices[place : place + 1] = [after] if after.state is NoticeState.DUE else []
        return after

    def _judged(self, one: Notice, sent: Sent) -> Notice:
        """The message after a try: sent, due again, or given up."""
        now = self._project.clock.now()
        if not sent.error:
            return msgspec.structs.replace(one, state=NoticeState.DELIVERED, ended_at=now, error="")
        if sent.hopeless or now - one.made_at >= GIVE_UP.total_seconds():
            self._tell(f"A message about {one.alert} to {one.channel} is given up: {sent.error}")
            return msgspec.structs.replace(one, state=NoticeState.FAILED, ended_at=now, error=sent.error)
        pause = PAUSES.pause(one.tries, jitter=random.random())
        if sent.asked is not None:
            pause = max(pause, min(sent.asked, LONGEST_PAUSE))
        self._tell(f"Channel {one.channel} does not accept messages: {sent.error}")
        return msgspec.structs.replace(one, error=sent.error, next_at=now + pause.total_seconds())

    def _tell(self, words: str) -> None:
        """Report the same words only once until a look succeeds again."""
        if words not in self._told:
            self._told.add(words)
            self._events.emit(Trouble(at=self._project.clock.now(), stage="alerts", message=words))


def _words(error: Exception) -> str:
    words = str(error) if isinstance(error, GossamerError) else f"{type(error).__name__}: {error}"
    return " ".join(words.split())
