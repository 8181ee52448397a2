"""The certificates of the authorities: read for the first TLS connection, not when the program starts."""

from __future__ import annotations

import subprocess
import sys

LOOK = """
import ssl
read = []
load = ssl.SSLContext.load_default_certs

def counted(context, *purpose):
    read.append(context)
    load(context, *purpose)

ssl.SSLContext.load_default_certs = counted
import gossamer.project.jobs.crawl
from aiohttp import connector

ours, unchecked = connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED
assert ours not in read and unchecked not in read, "they were read at the start"
assert ssl.SSLContext.load_default_certs is counted
assert "set_default_verify_paths" not in vars(ssl.SSLContext)
for context in (ours, unchecked):
    for _ in range(2):
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="shop.example")
    assert type(context) is ssl.SSLContext and read.count(context) == 1
assert ours.verify_mode is ssl.CERT_REQUIRED and ours.check_hostname
"""


def test_they_are_read_for_the_first_connection_and_not_before() -> None:
    looked = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=False)

    assert looked.returncode == 0, looked.stderr


def test_an_aiohttp_that_was_there_before_is_left_alone() -> None:
    code = (
        "import ssl; from aiohttp import connector; import gossamer.fetch.http;"
        "assert type(connector._SSL_CONTEXT_VERIFIED) is ssl.SSLContext"
    )

    looked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert looked.returncode == 0, looked.stderr
