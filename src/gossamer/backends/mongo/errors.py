"""Translates errors of MongoDB and its driver, each with the next step. Passwords never enter a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bson.errors import BSONError
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    CursorNotFound,
    DocumentTooLarge,
    ExecutionTimeout,
    InvalidURI,
    NetworkTimeout,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WaitQueueTimeoutError,
    WriteConcernError,
)

from ...errors import BackendUnavailable, BadState, GossamerError, Misconfigured, Permanent, StoreRefused

ELSEWHERE = "set records = 'mongodb://...' to another one in gossamer.toml"
EXAMPLE = "mongodb://user:password@host:27017/database"
DUPLICATE = 11000  # the error code of a taken id

# What the driver raises. A GossamerError passes through handlers of these.
DRIVER_ERRORS = (PyMongoError, BSONError, OverflowError, OSError, TimeoutError)

_NOT_LET_IN = (11, 18, 8000)
_NOT_ALLOWED = (13,)
_UNKNOWN_COMMAND = (59, 115)
_TOO_LARGE = (15, 52, 57, 10334, 17280, 17419, 17420)  # or nested too deeply, or with names that are not allowed
_FULL = (14031,)
_OTHER_INDEX = (67, 85, 86)
_NO_MAJORITY = (64, 79, 100)
_LATER = (6, 7, 24, 50, 89, 91, 112, 175, 189, 202, 225, 237, 262, 290, 9001, 10107, 11600, 11602, 13388, 13435, 13436)

MOST_SAID = 300  # characters quoted of a server's message


class Unstorable(Permanent):
    """A result that MongoDB cannot hold: more than 16 MB, a number out of range."""

    reason = "unstorable"


def translate(error: BaseException, place: str) -> GossamerError:
    """What went wrong at `place` (which names the server and the database), and what to do about it."""
    if isinstance(error, (BSONError, OverflowError)):
        return _unstorable(error, place)
    if isinstance(error, BulkWriteError):
        return _of_batch(error, place)
    if isinstance(error, OperationFailure):
        return _of_command(error, place)
    if isinstance(error, ConfigurationError):
        return _misconfigured(error, place)
    return _no_connection(error, place)


def translate_at_work(error: BaseException, place: str) -> GossamerError:
    """As `translate`, for a database that is open: a refusal now is an outage, not a wrong setting."""
    found = translate(error, place)
    return BackendUnavailable(str(found)) if isinstance(found, StoreRefused) else found


def _unstorable(error: BaseException, place: str) -> GossamerError:
    if isinstance(error, DocumentTooLarge):
        return Unstorable(f"{place} cannot hold a value of this result: it has more than 16 MB.")
    return Unstorable(f"{place} cannot hold a value of this result ({_short(str(error))}).")


def _of_batch(error: BulkWriteError, place: str) -> GossamerError:
    """A batch of writes of which some failed."""
    details: Mapping[str, Any] = error.details or {}
    for one in details.get("writeErrors", ()):
        if one.get("code") != DUPLICATE:
            return _by_code(one.get("code"), str(one.get("errmsg", "")), place)
    for one in details.get("writeConcernErrors", ()):
        return _not_confirmed(place, str(one.get("errmsg", "")))
    return Permanent(f"{place} refused to write (an id that is taken). Look at the server's log.")


def _of_command(error: OperationFailure, place: str) -> GossamerError:
    if isinstance(error, CursorNotFound):
        return BackendUnavailable(f"{place} has dropped the cursor of a reader. Read it again.")
    if isinstance(error, ExecutionTimeout):
        return BackendUnavailable(f"{place} took too long for one command. See what keeps it busy.")
    if isinstance(error, WriteConcernError):
        return _not_confirmed(place, str(error))
    said = str((error.details or {}).get("errmsg", "")) or str(error)
    if error.has_error_label("RetryableWriteError"):
        return _by_code(_LATER[0], said, place)
    return _by_code(error.code, said, place)


def _by_code(code: int | None, said: str, place: str) -> GossamerError:
    said = _short(said)
    if code in _NOT_LET_IN:
        return StoreRefused(
            f"{place} refused the login. Check the user, the password and authSource in `records`; special characters "
            f"of a password are written percent-encoded, @ as %40."
        )
    if code in _NOT_ALLOWED:
        return StoreRefused(f"{place}: {said}. Grant our user the role readWrite on the database.")
    if code in _UNKNOWN_COMMAND:
        return StoreRefused(f"{place} lacks features of MongoDB 4.4 ({said}). Use 4.4 or later.")
    if code in _TOO_LARGE:
        return Unstorable(f"{place} cannot hold a value of this result ({said}).")
    if code in _FULL:
        return BackendUnavailable(f"The disk of {place} is full ({said}). Free some space.")
    if code in _OTHER_INDEX:
        return BadState(f"{place} has another index under a name of ours ({said}). Drop it; it is created again.")
    if code in _NO_MAJORITY:
        return _not_confirmed(place, said)
    if code in _LATER:
        return BackendUnavailable(f"{place} cannot work at the moment ({said}). The interrupted work can be repeated.")
    return Permanent(f"{place} refused to work (error {code}: {said}). Look at the server's log.")


def _not_confirmed(place: str, said: str) -> GossamerError:
    return BackendUnavailable(
        f"{place}: a write was not confirmed by the majority of its members ({_short(said)}). See whether they run; "
        f"the interrupted work can be repeated."
    )


def _misconfigured(error: ConfigurationError, place: str) -> GossamerError:
    if isinstance(error, InvalidURI):  # its text may quote the address
        return Misconfigured(f"The address in `records` cannot be read. Write it like {EXAMPLE}.")
    return StoreRefused(f"{place} cannot be used ({_short(str(error))}). Check the address in `records`.")


def _no_connection(error: BaseException, place: str) -> GossamerError:
    if isinstance(error, ServerSelectionTimeoutError):
        # The driver adds a description of all it knows, for its developers.
        said = _short(str(error).partition(" (configured timeouts")[0].partition(", Timeout:")[0])
        return BackendUnavailable(f"{place} cannot be reached ({said}). Start it, or {ELSEWHERE}.")
    if isinstance(error, WaitQueueTimeoutError):
        return BackendUnavailable(f"All connections to {place} are busy. Try again later.")
    if isinstance(error, NotPrimaryError):
        return BackendUnavailable(f"{place} is electing another primary. The interrupted work can be repeated.")
    if isinstance(error, (NetworkTimeout, TimeoutError)):
        return BackendUnavailable(f"{place} does not answer. See whether it runs and can be reached from here.")
    if isinstance(error, (AutoReconnect, ConnectionFailure, OSError)):
        # Whether a write in progress succeeded is unknown. It does not matter: every batch can be stored again.
        return BackendUnavailable(
            f"The connection to {place} was lost ({_short(str(error))}). The interrupted work can be repeated."
        )
    return Permanent(f"The driver of {place} failed ({_short(str(error))}).")


def _short(said: str) -> str:
    line = said.partition("\n")[0].strip().rstrip(".")
    return line if len(line) <= MOST_SAID else line[:MOST_SAID] + "..."
