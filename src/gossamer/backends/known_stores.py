"""Which stores this project has used from this machine, and what a refusal of theirs means.

A store that was opened before is a right setting. When it refuses a login, a right or a key later, it is in the middle
of a failover or of a change of passwords: it is away, and processes wait for it as for a server that is down. Only a
store that was never opened can be a wrong setting.
What is kept: one empty file per store in `stores` in the spool folder. Its name is a digest of the address without
password and options. How it fails: where the file cannot be written, a refusal is a wrong setting, as for a new store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from ..errors import BackendUnavailable, StoreRefused
from ..settings import Settings
from .addresses import is_local

T = TypeVar("T")


@asynccontextmanager
async def opened_before(settings: Settings, role: str, opening: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """Open the store of that role, and remember that it was opened. Raises what `opening` raises, but
    BackendUnavailable instead of StoreRefused if the same store was opened before."""
    mark = None if is_local(settings, role) else _mark(settings, role)
    async with AsyncExitStack() as stack:
        try:
            store = await stack.enter_async_context(opening)
        except StoreRefused as error:
            if mark is None or not mark.exists():
                raise
            raise BackendUnavailable(f"{error} This project has used it before, so it counts as away.") from error
        if mark is not None and not mark.exists():
            with suppress(OSError):
                mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                mark.touch(mode=0o600)
        yield store


def _mark(settings: Settings, role: str) -> Path:
    scheme, _, rest = str(getattr(settings, role)).partition("?")[0].partition("://")
    login, _, place = rest.rpartition("@")
    user = login.partition(":")[0]
    digest = blake2b("\0".join((settings.project, scheme, user, place)).encode(), digest_size=16).hexdigest()
    return settings.root / settings.store.spool / "stores" / f"{role}-{digest}"
