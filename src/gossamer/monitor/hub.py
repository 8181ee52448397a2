"""Where events go: to every listener, in order, at once."""

from __future__ import annotations

from ..model.events import Event, EventSink


class EventHub:
    """An EventSink that passes events on. Listeners are cheap and do not raise."""

    def __init__(self, *listeners: EventSink) -> None:
        self._listeners = listeners

    def emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener.emit(event)
