"""How many files a process may have open, and how to tell that this limit caused an error.

Sockets count as files. A process at its limit fails wherever it opens the next one, and the error speaks of other
things: a database that cannot be opened, a server that cannot be reached.
"""

from __future__ import annotations

import errno
import os
import resource

USED_UP = (errno.EMFILE, errno.ENFILE)


def allowed() -> int | None:
    """How many files this process may have open; None: unlimited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def are_used_up() -> bool:
    """Is this process unable to open a file now? For errors of libraries that do not say why they failed."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in USED_UP
    return False


def were_used_up(error: BaseException | None) -> bool:
    """Does the error, or one of its causes, say so?"""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError) and error.errno in USED_UP:
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def remedy() -> str:
    bound = allowed()
    most = "as many as the system has" if bound is None else f"{bound:,}, as many as it may"
    return (
        f"This process has too many files and connections open ({most}). Raise the limit (`ulimit -n 65536`, or "
        f"LimitNOFILE in a service file), or lower crawl.concurrency."
    )
