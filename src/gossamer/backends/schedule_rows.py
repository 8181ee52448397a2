"""How the backends decode stored schedules. An unreadable one does not hide the others."""

from __future__ import annotations

import msgspec

from ..errors import BadState
from ..model.schedule import ScheduleProgress, UnreadableSchedule

_decode = msgspec.json.Decoder(ScheduleProgress).decode


def decode_schedule(name: str, text: str | bytes) -> ScheduleProgress | UnreadableSchedule:
    """The schedule stored under a name. Never raises."""
    try:
        found = _decode(text)
    except (msgspec.MsgspecError, ValueError) as error:
        return UnreadableSchedule(name, str(error))
    return (
        found if found.schedule.name == name else UnreadableSchedule(name, f"it calls itself {found.schedule.name!r}")
    )


def readable(found: ScheduleProgress | UnreadableSchedule) -> ScheduleProgress:
    """For a move, which must take every schedule along. Raises BadState."""
    if isinstance(found, UnreadableSchedule):
        raise BadState(found.words)
    return found


def is_free(known: ScheduleProgress | UnreadableSchedule | None, *, replace: bool) -> bool:
    """Whether a schedule written under this name starts anew."""
    if isinstance(known, UnreadableSchedule):
        return replace
    return known is None or (known.withdrawn_at is not None and not replace)
