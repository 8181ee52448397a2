"""Translates errors of PostgreSQL and its driver, each with the next step. Passwords never enter a message."""

from __future__ import annotations

import ssl
from socket import gaierror

import asyncpg

from ...clock import certificate_out_of_time
from ...errors import BackendUnavailable, BadState, GossamerError, Misconfigured, Permanent, StoreRefused

ELSEWHERE = "set records = 'postgresql://...' to another one in gossamer.toml"

# What the driver raises. A GossamerError passes through handlers of these.
DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)

# Another transaction interfered. Nothing was written; the same work is repeated.
COLLISIONS = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)

# The driver gets confused (InternalClientError) when the server goes away in the middle of an answer.
LOST = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError, ConnectionError)


class Unstorable(Permanent):
    """A value that PostgreSQL cannot hold: too long for an index, a number out of range, text that is not JSON."""

    reason = "unstorable"


def translate(error: BaseException, place: str) -> GossamerError:
    """What went wrong at `place` (which names the server and the database), and what to do about it."""
    found = _refused_entry(error, place) or _refused_work(error, place)
    if found is not None:
        return found
    if isinstance(error, asyncpg.PostgresError):
        return _by_class(error, place)
    return _no_connection(error, place)


def translate_at_work(error: BaseException, place: str) -> GossamerError:
    """As `translate`, for a database that is open: a refusal now is an outage, not a wrong setting."""
    found = translate(error, place)
    return BackendUnavailable(str(found)) if isinstance(found, StoreRefused) else found


def _refused_entry(error: BaseException, place: str) -> GossamerError | None:
    """Errors of a refused login."""
    said = str(error)
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):  # wrong passwords are among them
        return StoreRefused(
            f"{place} refused the login ({said}). Check the user and the password in `records`; special "
            f"characters of a password are written percent-encoded, @ as %40."
        )
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return StoreRefused(f"{place}: {said}. Create it with `createdb -E UTF8 -T template0 NAME`, or {ELSEWHERE}.")
    if isinstance(error, asyncpg.TooManyConnectionsError):
        return BackendUnavailable(
            f"{place} accepts no further connections ({said}). Raise max_connections, or run fewer workers."
        )
    if isinstance(error, asyncpg.CannotConnectNowError):
        return BackendUnavailable(f"{place} is not ready ({said}). Wait until it has started.")
    if isinstance(error, (asyncpg.UndefinedObjectError, asyncpg.CantChangeRuntimeParamError)):
        return Misconfigured(f"{place}: an option after the ? of the address is not known ({said}). Leave it out.")
    if isinstance(error, asyncpg.ClientConfigurationError):
        # Its text may quote the address.
        return Misconfigured(
            "The address in `records` cannot be read. Write it like postgresql://user:password@host:5432/database."
        )
    return None


def _refused_work(error: BaseException, place: str) -> GossamerError | None:
    """Errors of statements, if the user can do something about the database."""
    said = str(error).partition("\n")[0]
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StoreRefused(
            f"{place}: {said}. As its owner: GRANT CREATE ON DATABASE ... TO our user, or make the schema for it "
            f"with CREATE SCHEMA ... AUTHORIZATION ..."
        )
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return BackendUnavailable(
            f"{place} has become read-only: a replica, or a server that was switched over. "
            f"Set `records` to the address of the primary."
        )
    if isinstance(error, (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.InvalidSchemaNameError)):
        return BadState(f"{place} lacks tables of ours ({said}). Restore them, or run: gossamer migrate")
    if isinstance(error, (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)):
        return StoreRefused(
            f"{place} is reached through a pooler that forgets prepared statements. Use PgBouncer 1.21 or newer with "
            f"max_prepared_statements above 0, or its session mode, or the server's own address."
        )
    if isinstance(error, asyncpg.DiskFullError):
        return BackendUnavailable(f"The disk of {place} is full ({said}). Free some space.")
    if isinstance(error, (asyncpg.DataError, asyncpg.ProgramLimitExceededError)):
        return Unstorable(f"{place} cannot hold a value of this result ({said}).")
    return None


def _by_class(error: asyncpg.PostgresError, place: str) -> GossamerError:
    """The remaining errors of the server, by the class of their code."""
    said = str(error).partition("\n")[0]
    code: str = error.sqlstate or ""
    if isinstance(error, LOST):
        return _lost(place, said)
    if code.startswith("57"):
        return BackendUnavailable(f"{place} broke off ({said}). The interrupted work can be repeated.")
    if code[:2] in ("25", "40", "53", "55", "58", "XX"):
        return BackendUnavailable(f"{place} cannot work at the moment ({said}). Look at the server's log.")
    return Permanent(f"{place} refused to work (error {code}: {said}). Look at the server's log.")


def _no_connection(error: BaseException, place: str) -> GossamerError:
    if isinstance(error, gaierror):
        return BackendUnavailable(f"{place}: the name of the host is not known. Check its spelling, or {ELSEWHERE}.")
    if words := certificate_out_of_time(error):  # the server is right, and may be soon: no wrong setting
        return BackendUnavailable(f"{place} cannot be trusted: {words}")
    if isinstance(error, ssl.SSLError):
        return StoreRefused(f"{place}: no secure connection ({error.reason}). Check sslmode and sslrootcert.")
    if isinstance(error, ConnectionRefusedError):
        return BackendUnavailable(f"{place} refused the connection. Start it, or {ELSEWHERE}.")
    if isinstance(error, TimeoutError):
        return BackendUnavailable(f"{place} does not answer. See whether it runs and can be reached from here.")
    if type(error) is ConnectionError:  # the driver's own, during the handshake; errors of sockets are narrower
        return _no_handshake(error, place)
    if isinstance(error, LOST):
        return _lost(place, str(error))
    return BackendUnavailable(
        f"{place} cannot be reached ({error}). See whether it runs, and whether files that the address names are there."
    )


def _no_handshake(error: ConnectionError, place: str) -> GossamerError:
    if "SSL upgrade" in str(error):  # the driver has no class for it
        # While a server is away, another program may answer at its port: an outage for those who used it before.
        return BackendUnavailable(
            f"What answers is not PostgreSQL, or it has no TLS while sslmode asks for it: {place}. "
            f"Check host, port and sslmode in `records`."
        )
    return BackendUnavailable(
        f"{place} closes the connection without a message. See whether it is PostgreSQL, and whether it has started."
    )


def _lost(place: str, said: str) -> BackendUnavailable:
    # Whether a commit in progress succeeded is unknown. It does not matter: every batch can be stored again.
    return BackendUnavailable(f"The connection to {place} was lost ({said}). The interrupted work can be repeated.")
