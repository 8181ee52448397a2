"""Names below localhost lead to this machine, as RFC 6761 wants it. Not every resolver of an operating system knows."""

from __future__ import annotations

import socket
from typing import Any


def resolve() -> None:
    """From now on, in this process."""
    addresses, one_address = socket.getaddrinfo, socket.gethostbyname

    def here(host: Any) -> Any:  # of any type that the functions below take
        return "127.0.0.1" if isinstance(host, str) and host.endswith(".localhost") else host

    def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
        return addresses(here(host), *arguments, **options)

    def gethostbyname(host: str) -> str:
        return one_address(here(host))

    socket.getaddrinfo, socket.gethostbyname = getaddrinfo, gethostbyname
