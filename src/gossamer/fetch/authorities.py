"""Imports aiohttp without loading the CA certificates: they are read when the first TLS connection is made.

On import, aiohttp creates two contexts for sessions that bring none, and reads all certificates for each: a seventh of
the start-up time of a command that fetches, even if no page is https. Here the certificates are read when such a
context is first used, also by a spider with a session of its own; from then on it is an ordinary context.
Other modules may import aiohttp directly; if one did so earlier, the certificates are already loaded, which does no
harm.
"""

from __future__ import annotations

import ssl
import sys
import threading
from typing import Any


class _LateContext(ssl.SSLContext):
    """A context that has not loaded its CA certificates yet."""

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:  # Any: as ssl has them
        return _completed(self).wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        return _completed(self).wrap_socket(*arguments, **options)


def _completed(context: ssl.SSLContext) -> ssl.SSLContext:
    """The same context, an ordinary one from now on. Two threads at once may load the certificates twice, which does no
    harm."""
    context.load_default_certs()
    context.__class__ = ssl.SSLContext
    return context


def _import_aiohttp() -> None:
    load, here = ssl.SSLContext.load_default_certs, threading.get_ident()
    put_off: list[ssl.SSLContext] = []

    def put_off_here(context: ssl.SSLContext, purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH) -> None:
        if threading.get_ident() == here:
            put_off.append(context)
        else:  # another thread may be creating a context right now
            load(context, purpose)

    ssl.SSLContext.load_default_certs = put_off_here  # type: ignore[assignment,method-assign]
    ssl.SSLContext.set_default_verify_paths = put_off_here  # type: ignore[assignment,method-assign]
    try:
        import aiohttp  # noqa: F401
    finally:
        ssl.SSLContext.load_default_certs = load  # type: ignore[method-assign]
        del ssl.SSLContext.set_default_verify_paths  # restores the method of the base class
    for context in put_off:
        context.__class__ = _LateContext


if "aiohttp" not in sys.modules:
    _import_aiohttp()

import aiohttp  # noqa: E402

__all__ = ["aiohttp"]
