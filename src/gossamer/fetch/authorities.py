"""aiohttp, without the certificates of the authorities: they are read when the first TLS connection is made.

When it is imported, aiohttp makes two contexts for sessions that bring none, and reads all certificates for each: a
seventh of what it takes to start a command that fetches, also where no page is https. Here that waits until somebody
uses such a context, be it a spider with a session of its own; then it is what aiohttp meant it to be.
Other modules may import aiohttp by themselves; where one did so before, nothing is gained and nothing lost.
"""

from __future__ import annotations

import ssl
import sys
import threading
from typing import Any


class _LateContext(ssl.SSLContext):
    """A context that has not read its authorities yet."""

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:  # Any: as ssl has them
        return _completed(self).wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        return _completed(self).wrap_socket(*arguments, **options)


def _completed(context: ssl.SSLContext) -> ssl.SSLContext:
    """The same context, an ordinary one from now on. Two threads at once may read the authorities twice: no harm."""
    context.load_default_certs()
    context.__class__ = ssl.SSLContext
    return context


def _import_aiohttp() -> None:
    load, here = ssl.SSLContext.load_default_certs, threading.get_ident()
    put_off: list[ssl.SSLContext] = []

    def put_off_here(context: ssl.SSLContext, purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH) -> None:
        if threading.get_ident() == here:
            put_off.append(context)
        else:  # another thread makes a context of its own just now
            load(context, purpose)

    ssl.SSLContext.load_default_certs = put_off_here  # type: ignore[assignment,method-assign]
    ssl.SSLContext.set_default_verify_paths = put_off_here  # type: ignore[assignment,method-assign]
    try:
        import aiohttp  # noqa: F401
    finally:
        ssl.SSLContext.load_default_certs = load  # type: ignore[method-assign]
        del ssl.SSLContext.set_default_verify_paths  # what it has from its base counts again
    for context in put_off:
        context.__class__ = _LateContext


if "aiohttp" not in sys.modules:
    _import_aiohttp()

import aiohttp  # noqa: E402

__all__ = ["aiohttp"]
