"""The connection to a Redis or Valkey server or cluster: opening, checking, running scripts, translating errors.

How it fails: Misconfigured (wrong password, wrong kind of server, too old, may evict our keys), BackendUnavailable (no
answer, loading, read-only, out of memory). How it recovers: every call opens a new connection if the old one is gone;
nothing is repeated here, because only the caller knows what is safe to repeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from hashlib import sha1
from importlib.resources import files
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from ...clock import certificate_out_of_time
from ...errors import BackendUnavailable, GossamerError, Misconfigured, MissingExtra, StoreRefused
from ...process import limits as openfiles

try:
    from redis import exceptions as problems
    from redis.asyncio import Redis
    from redis.asyncio.cluster import RedisCluster
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
except ImportError as error:  # pragma: no cover - exercised by a test that hides the package
    raise MissingExtra(
        "The state is on Redis, and the client for it is not installed: pip install 'gossamer[fleet]'"
    ) from error

OLDEST = (6, 2)
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0
MAX_CONNECTIONS = 16  # per process; further calls wait for a free one
# What is loaded before a script. All other scripts work on a shard, and are loaded after the clock and the prelude.
SHARED_PARTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("add", "settle", "resolve"), ("clock", "prelude", "admission")),
    **dict.fromkeys(("open_job", "change_job", "settle_tick"), ("clock", "jobs")),
    **dict.fromkeys(("lead", "seed_lease", "proxies_report", "proxies_use", "proxies_renew"), ("clock",)),
    **dict.fromkeys(("address_turn", "shelf_commit"), ("clock",)),
    **dict.fromkeys(("resign", "unlock", "routes_learn", "routes_forget", "routes_take", "routes_give_back"), ()),
    "read_book": (),
}


_ESCAPES = "In a password write / as %2F, ? as %3F, # as %23, @ as %40, [ as %5B and ] as %5D."


class OutOfMemory(BackendUnavailable):
    """The server's memory is full and it refuses writes that need more."""

    reason = "state-out-of-memory"


@cache
def script(name: str) -> tuple[bytes, str]:
    """The text of a script with the parts that it shares with others, and its digest."""
    parts = SHARED_PARTS.get(name, ("clock", "prelude"))
    folder = files(__package__) / "lua"
    text = "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in (*parts, name)).encode()
    return text, sha1(text, usedforsecurity=False).hexdigest()


class Server:
    """An open server or cluster. Tests replace its clock by `time`."""

    def __init__(
        self,
        client: Any,  # the two clients share no type
        where: str,
        *,
        cluster: bool,
        time: Callable[[], float] | None = None,
    ) -> None:
        self._client = client
        self.where = where
        self.cluster = cluster
        self._time = time
        self.ticks = time or monotonic  # measures durations
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)
        self.is_in_use = False  # its state was opened: a refusal is an outage from now on, not a wrong setting

    async def run(self, name: str, keys: Sequence[str], *args: Any) -> Any:  # Any: each script has its own answer
        """Run a script atomically. Raises BackendUnavailable; it is then unknown whether it ran."""
        text, digest = script(name)
        with self._translated():
            try:
                return await self._execute("EVALSHA", digest, len(keys), *keys, *args)
            except problems.NoScriptError:
                return await self._execute("EVAL", text, len(keys), *keys, *args)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            with translated(self.where):
                yield
        except StoreRefused as error:
            if not self.is_in_use:
                raise
            raise BackendUnavailable(str(error)) from error

    async def call(self, *command: Any) -> Any:
        with self._translated():
            return await self._execute(*command)

    async def _execute(self, *command: Any) -> Any:
        return await self._alone(lambda: self._client.execute_command(*command))

    async def _alone(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Send it on a connection for exclusive use."""
        task = asyncio.current_task()
        asked = task.cancelling() if task is not None else 0
        async with self._room:
            answer = await ask()
        if task is not None and task.cancelling() > asked:
            # The driver uses wait_for, which in Python 3.11 loses a cancellation that coincides with a result.
            raise asyncio.CancelledError
        return answer

    async def together(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers to several commands that are sent at once, and need not be atomic."""
        if len(commands) < 2:
            return [await self.call(*command) for command in commands]
        pipeline = self._client.pipeline() if self.cluster else self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        with self._translated():
            answers: list[Any] = await self._alone(pipeline.execute)
        return answers

    def now(self) -> str:
        """The time as scripts take it: empty, so that they use the server's clock, except in tests."""
        return "" if self._time is None else repr(self._time())

    async def time(self) -> float:
        """The server's clock."""
        if self._time is not None:
            return self._time()
        seconds, micros = await self.call("TIME")
        return int(seconds) + int(micros) / 1_000_000

    async def fields(self, key: str) -> dict[bytes, bytes]:
        """A whole hash. Only for hashes that stay small."""
        return (await self.hashes([key]))[0]

    async def hashes(self, keys: Sequence[str]) -> list[dict[bytes, bytes]]:
        """Several of them."""
        answers = await self.together([("HGETALL", key) for key in keys])
        return [one if isinstance(one, dict) else dict(zip(one[::2], one[1::2], strict=True)) for one in answers]

    async def scan(self, key: str, count: int = 500) -> AsyncIterator[tuple[bytes, bytes]]:
        """Every field of a hash, without blocking the server for long; one may come twice while the hash changes."""
        cursor: Any = 0
        while True:
            cursor, found = await self.call("HSCAN", key, cursor, "COUNT", count)
            pairs = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
            for name, value in pairs:
                yield name, value
            if int(cursor) == 0:
                return

    async def names(self, pattern: str) -> AsyncIterator[bytes]:
        """Every key whose name matches the pattern, on all nodes."""
        with self._translated():
            async for name in self._client.scan_iter(match=pattern, count=1_000):
                yield name

    async def close(self) -> None:
        await self._client.aclose()


@asynccontextmanager
async def open_server(
    address: str,
    time: Callable[[], float] | None = None,
    *,
    answer_seconds: float = ANSWER_SECONDS,
    oldest: tuple[int, int] = OLDEST,
) -> AsyncIterator[tuple[Server, tuple[str, ...]]]:
    """Connect and check that the server is safe for a queue; also returns warnings for the user."""
    url = _driver_address(address)
    where = place_of(address)
    client: Any = Redis.from_url(url, **_options(answer_seconds))
    server = Server(client, where, cluster=False, time=time)
    try:
        facts = await _facts(server)
        if facts.get("cluster_enabled") == "1":
            await client.aclose()
            with translated(where):
                # A slot that was moved is looked up alone. Otherwise the driver would close every connection after five
                # of them, while other calls wait for answers on them.
                client = RedisCluster.from_url(url, **_options(answer_seconds), reinitialize_steps=0)
                await client.initialize()
            server = Server(client, where, cluster=True, time=time)
        yield server, await _trust(server, facts, oldest)
    finally:
        await client.aclose()


def place_of(address: str) -> str:
    """Host and port of an address, without secrets. Raises Misconfigured."""
    scheme = address.partition("://")[0]
    try:
        parts = urlsplit(address)
    except ValueError:
        raise Misconfigured(f"state = '{scheme}://...': this is not an address. {_ESCAPES}") from None
    if parts.netloc and "@" in f"{parts.path}{parts.query}{parts.fragment}":
        # Then the text before it is not a host, but the beginning of a password.
        raise Misconfigured(f"state = '{scheme}://...': an @ is where no password can be. {_ESCAPES}")
    try:
        port = parts.port or 6379
    except ValueError:
        raise Misconfigured(f"state = '{scheme}://...': the port is not a number. {_ESCAPES}") from None
    return f"{parts.hostname or parts.path}:{port}" if parts.hostname else parts.path


def _driver_address(address: str) -> str:
    scheme, _, rest = address.partition("://")
    known = {"redis": "redis", "valkey": "redis", "rediss": "rediss", "valkeys": "rediss", "redis+unix": "unix"}
    return f"{known[scheme]}://{rest}"


def _options(answer_seconds: float) -> dict[str, Any]:
    return {
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_timeout": answer_seconds,
        "max_connections": 2 * MAX_CONNECTIONS,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        "protocol": 2,
    }


async def _facts(server: Server) -> dict[str, str]:
    answer = await server.call("INFO", "everything")
    if isinstance(answer, dict):
        return {str(name): str(value) for name, value in answer.items()}
    text = answer.decode() if isinstance(answer, bytes) else str(answer)
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}


async def _trust(server: Server, facts: dict[str, str], oldest: tuple[int, int]) -> tuple[str, ...]:
    version = tuple(int(part) for part in facts.get("redis_version", "0.0").split(".")[:2])
    if version < oldest:
        raise StoreRefused(
            f"The server at {server.where} is version {facts.get('redis_version', '?')}; Gossamer needs Redis 6.2 or "
            "newer, or any Valkey. Upgrade it, or set state = 'sqlite:///...' in gossamer.toml."
        )
    if facts.get("role") == "slave":
        # Never a wrong setting: it may have been the primary a moment ago, and may be it again.
        raise BackendUnavailable(
            f"The server at {server.where} is a read-only replica. Give the address of its primary as state."
        )
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy.startswith("allkeys"):
        raise StoreRefused(
            f"The server at {server.where} evicts any key when memory is short (maxmemory-policy {policy}): it would "
            "silently lose parts of the queue. Set maxmemory-policy to noeviction, or use a separate server."
        )
    warnings = []
    if facts.get("aof_enabled") == "0":
        saved = await _setting(server, "save")
        if saved == "":
            warnings.append(
                f"The server at {server.where} keeps nothing on disk: when it stops, the queue is gone. "
                "Set appendonly yes."
            )
        else:
            warnings.append(
                f"The server at {server.where} saves snapshots only: when it dies, what was settled since the last one "
                "is fetched again. Set appendonly yes to repeat less."
            )
    return tuple(warnings)


async def may_lose(server: Server) -> str:
    """What a power cut may take from the server's answers, in a sentence for the user; "" if nothing."""
    kept, synced = await _setting(server, "appendonly"), await _setting(server, "appendfsync")
    if (kept, synced) == ("yes", "always"):
        return ""
    if kept is None or synced is None:
        return (
            f"Whether a power cut may take the last changes from the server at {server.where} is unknown: it does not "
            "allow CONFIG GET. With appendonly yes and appendfsync always it takes none."
        )
    return (
        f"A power cut may take the last changes from the server at {server.where}, also a job whose id was given out, "
        f"a schedule or a key (appendonly {kept}, appendfsync {synced}). Set appendonly yes and appendfsync always to "
        "keep them all."
    )


async def _setting(server: Server, name: str) -> str | None:
    """A setting of the server; None if we may not read it."""
    try:
        answer = await server.call("CONFIG", "GET", name)
    except GossamerError:
        return None
    values = list(answer.values()) if isinstance(answer, dict) else answer[1::2]
    value = values[0] if values else None
    return value.decode() if isinstance(value, bytes) else value


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Translates driver errors. Messages never hold the password: the driver's own text is not passed on blindly."""
    try:
        yield
    except problems.AuthenticationError as error:
        raise StoreRefused(
            f"Redis at {where} refused the user name or password. Fix the state address, or its environment variable."
        ) from error
    except problems.ReadOnlyError as error:
        raise BackendUnavailable(
            f"Redis at {where} is read-only now: a replica, or in the middle of a failover. Give the primary's address."
        ) from error
    except problems.OutOfMemoryError as error:
        raise out_of_memory(where) from error
    except problems.BusyLoadingError as error:
        raise BackendUnavailable(f"Redis at {where} is loading its data from disk.") from error
    except problems.InvalidResponse as error:
        # While a server is away, another program may answer at its port: an outage for those who used it before.
        raise BackendUnavailable(
            f"What answers at {where} is not a Redis or Valkey server. Check host and port of state in gossamer.toml."
        ) from error
    except (problems.ConnectionError, problems.TimeoutError, problems.ClusterDownError, OSError) as error:
        raise BackendUnavailable(_unreachable(where, error)) from error
    except problems.RedisClusterException as error:
        raise BackendUnavailable(f"The cluster at {where} cannot be used: {_first_line(error)}.") from error
    except problems.ResponseError as error:
        raise _refused(where, error) from error


def _unreachable(where: str, error: Exception) -> str:
    if isinstance(error, problems.TimeoutError | asyncio.TimeoutError):
        return f"Redis at {where} does not answer."
    if openfiles.were_used_up(error):
        return openfiles.remedy()
    if words := certificate_out_of_time(error):
        return f"Redis at {where} cannot be trusted: {words}"
    return (
        f"Redis at {where} cannot be reached ({_first_line(error)}). "
        "Start it, or set state = 'sqlite:///...' in gossamer.toml."
    )


def _refused(where: str, error: Exception) -> GossamerError:
    text = _first_line(error)
    if "OOM" in text:
        return out_of_memory(where)
    if "DB index" in text or "invalid DB" in text:
        return StoreRefused(f"Redis at {where} has no database of that number. Fix the number at the end of state.")
    if "NOAUTH" in text or "WRONGPASS" in text or "invalid password" in text or "without any password" in text:
        return StoreRefused(f"Redis at {where} requires another user name or password. Fix the state address.")
    if "NOPERM" in text:
        return StoreRefused(f"Redis at {where} does not allow this user what Gossamer needs: {text}")
    if "unknown command" in text.lower():
        return StoreRefused(f"The server at {where} lacks a command that Gossamer needs: {text}")
    if any(word in text for word in ("MISCONF", "READONLY", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN")):
        return BackendUnavailable(f"Redis at {where} cannot write now: {text}")
    return BackendUnavailable(f"Redis at {where} failed: {text}")


def out_of_memory(where: str) -> OutOfMemory:
    return OutOfMemory(f"Redis at {where} is out of memory. Raise its maxmemory, or let the workers finish.")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
