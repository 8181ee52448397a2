"""The certificates of the authorities: read for the first TLS connection, not when the program starts."""

from __future__ import annotations

import subprocess
import sys

LOOK = """
import ssl
before = ssl.SSLContext.load_default_certs
import gossamer.project.crawl
from aiohttp import connector

def read(context):
    return context.cert_store_stats()["x509"]

wanted = read(ssl.create_default_context())
ours, unchecked = connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED
assert wanted > 0 and read(ours) == 0 and read(unchecked) == 0, "they were read at the start"
assert ssl.SSLContext.load_default_certs is before
assert "set_default_verify_paths" not in vars(ssl.SSLContext)
for context in (ours, unchecked):
    context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="shop.example")
    assert type(context) is ssl.SSLContext and read(context) == wanted
assert ours.verify_mode is ssl.CERT_REQUIRED and ours.check_hostname
"""


def test_they_are_read_for_the_first_connection_and_not_before() -> None:
    looked = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=False)

    assert looked.returncode == 0, looked.stderr


def test_an_aiohttp_that_was_there_before_is_left_alone() -> None:
    code = (
        "from aiohttp import connector; import gossamer.fetch.http;"
        "assert connector._SSL_CONTEXT_VERIFIED.cert_store_stats()['x509'] > 0"
    )

    looked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert looked.returncode == 0, looked.stderr
