"""The child process that reads one document: the kind as its argument, the body on standard input, HTML on standard
output.

It has no project, settings or secrets, and does not see the working folder (`python -P`). Bounds: memory and CPU time
by the kernel; the parent kills it after the time that it was given. Exit code 0: HTML follows; 2: a sentence about
why it cannot be read.
"""

from __future__ import annotations

import ctypes
import resource
import signal
import sys

from . import DocumentKind, DocumentUnreadable, document_html
from .contract import UNREADABLE

MEMORY = 1024**3  # bytes
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def main() -> int:
    kind, seconds = DocumentKind(sys.argv[1]), int(sys.argv[2])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # it writes no files
    body = sys.stdin.buffer.read()
    try:
        html = document_html(kind, body)
    except DocumentUnreadable as error:
        sys.stdout.write(str(error))
        return UNREADABLE
    except (MemoryError, RecursionError):
        sys.stdout.write("It needs more memory than a document may.")
        return UNREADABLE
    sys.stdout.buffer.write(html.encode("utf-8", "replace"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
