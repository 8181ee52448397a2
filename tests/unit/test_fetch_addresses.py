from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest

from gossamer.errors import AddressRefused, DnsFailed
from gossamer.fetch.addresses import AddressGuard, GuardedResolver, is_own, is_public
from tests.patience import PATIENCE


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.5.4", "192.168.1.1",
        "168.63.129.16", "100.100.100.200",
        "169.254.169.254", "100.64.0.1", "192.0.0.8", "192.88.99.1", "198.18.0.1", "203.0.113.9", "224.0.0.1",
        "240.0.0.1", "255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8",
        "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::",
        "fc00::1", "fd12:3456::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "not an address", "",
    ],
)  # fmt: skip
def test_addresses_off_the_open_internet_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450::1"])
def test_addresses_of_the_open_internet_are_public(address: str) -> None:
    assert is_public(address)


def test_a_private_address_is_refused_with_the_setting_to_change() -> None:
    guard = AddressGuard()
    with pytest.raises(AddressRefused, match=r"shop\.example leads to 10\.0\.0\.1.*fetch\.allow_hosts"):
        guard.check("shop.example", "10.0.0.1")


def test_an_allowed_host_may_be_private_and_no_other() -> None:
    guard = AddressGuard(allow_hosts=frozenset({"localhost", "::1"}))
    assert guard.permits("LOCALHOST.", "127.0.0.1")
    assert guard.permits("[::1]", "::1")
    assert not guard.permits("other.example", "127.0.0.1")
    assert not guard.permits("", "127.0.0.1")


def test_allow_private_lets_everything_through() -> None:
    assert AddressGuard(allow_private=True).permits("x.example", "10.0.0.1")


async def test_localhost_is_loopback_without_asking_the_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_dns(*_: object, **__: object) -> None:
        raise AssertionError("the DNS was asked")

    monkeypatch.setattr(socket, "getaddrinfo", no_dns)
    resolver = GuardedResolver(AddressGuard(allow_private=True))
    for name in ("localhost", "shop.localhost", "LOCALHOST."):
        assert {answer["host"] for answer in await resolver.resolve(name, 80)} == {"127.0.0.1", "::1"}
    await resolver.close()


async def test_localhost_is_refused_unless_allowed() -> None:
    resolver = GuardedResolver(AddressGuard())
    with pytest.raises(AddressRefused):
        await resolver.resolve("localhost", 80)
    await resolver.close()


async def test_a_name_that_does_not_exist_is_a_dns_failure() -> None:
    resolver = GuardedResolver(AddressGuard())
    with pytest.raises(DnsFailed):
        await resolver.resolve("no-such-name.invalid", 80)
    await resolver.close()


@pytest.mark.parametrize("name", ["a" * 64 + ".example", "a..b", "\udc80.example", "x" * 300])
async def test_a_name_that_cannot_be_written_is_a_dns_failure(name: str) -> None:
    resolver = GuardedResolver(AddressGuard())
    with pytest.raises(DnsFailed):
        await resolver.resolve(name, 80)
    await resolver.close()


class Names:
    """Answers instead of the system's resolver: the net is out of reach of tests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: list[str]) -> None:
        self.asked: list[str] = []
        self.answers = answers
        monkeypatch.setattr(socket, "getaddrinfo", self._answer)

    def _answer(self, host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        self.asked.append(host)
        if host.partition(".")[0] not in self.answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(0, 0, 0, "", (address, 0)) for address in self.answers[host.partition(".")[0]]]


async def test_only_the_public_addresses_of_a_mixed_answer_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, mixed=["10.0.0.1", "93.184.216.34", "::1"])
    resolver = GuardedResolver(AddressGuard())
    assert [answer["host"] for answer in await resolver.resolve("mixed.example", 443)] == ["93.184.216.34"]
    await resolver.close()


async def test_answers_are_kept_and_equal_questions_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch, a=["93.184.216.34"])
    resolver = GuardedResolver(AddressGuard())
    await asyncio.gather(*(resolver.resolve("a.example", 80) for _ in range(20)))
    await resolver.resolve("A.example.", 443)
    for _ in range(3):
        with pytest.raises(DnsFailed):
            await resolver.resolve("gone.example", 80)
    assert names.asked == ["a.example", "gone.example"]
    await resolver.close()


async def test_the_number_of_kept_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch, a=["93.184.216.34"])
    resolver = GuardedResolver(AddressGuard(), max_names=2)
    for host in ("a.1", "a.2", "a.3", "a.3", "a.1"):
        await resolver.resolve(host, 80)
    assert names.asked == ["a.1", "a.2", "a.3", "a.1"]
    await resolver.close()


async def test_a_caller_that_gives_up_does_not_spoil_the_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch, a=["93.184.216.34"])
    resolver = GuardedResolver(AddressGuard())
    impatient = asyncio.ensure_future(resolver.resolve("a.example", 80))
    patient = asyncio.ensure_future(resolver.resolve("a.example", 80))
    await asyncio.sleep(0)
    impatient.cancel()
    assert [answer["host"] for answer in await patient] == ["93.184.216.34"]
    assert names.asked == ["a.example"]
    await resolver.close()


# -- this machine, networks of the owner's choice, ports ---------------------------------------------------------

IN_A_NETWORK_OF_ITS_OWN = """
import asyncio, ctypes, fcntl, socket, struct, sys
from datetime import timedelta
if ctypes.CDLL(None).unshare(0x10000000 | 0x40000000):  # users and network
    sys.exit(77)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    address = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton("93.184.216.34"))
    fcntl.ioctl(control, 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # up
    fcntl.ioctl(control, 0x8916, address)
from gossamer.errors import AddressRefused
from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.contract import Limits, TransportRequest
from gossamer.fetch.http import AiohttpTransport

async def main():
    reached = 0
    async def answer(reader, writer):
        nonlocal reached
        reached += 1
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nhi")
        writer.close()
    server = await asyncio.start_server(answer, "0.0.0.0", 0)
    url = f"http://93.184.216.34:{server.sockets[0].getsockname()[1]}/"
    for guard in (AddressGuard(), AddressGuard(allow_hosts=frozenset({"93.184.216.34"}))):
        async with AiohttpTransport(guard) as transport:
            try:
                print((await transport.fetch(TransportRequest(url=url, headers=(), limits=Limits()))).status, reached)
            except AddressRefused as error:
                print(reached, error)
asyncio.run(main())
"""


def test_a_public_address_of_this_machine_is_refused() -> None:
    """In a network of its own, where this machine has an address that is public elsewhere."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_NETWORK_OF_ITS_OWN], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    if done.returncode == 77:
        pytest.skip("this machine lets nobody make a network")
    assert done.stdout.splitlines() == [
        "0 93.184.216.34 is an address of this machine. If it is intended, add '93.184.216.34' to "
        "fetch.allow_hosts in gossamer.toml, or set fetch.allow_private = true.",
        "200 1",
    ], done.stderr


def test_addresses_of_this_machine_are_known() -> None:
    assert [is_own(address) for address in ("127.0.0.1", "93.184.216.34")] == [True, False]


def test_the_owner_may_deny_networks_whatever_else_is_allowed() -> None:
    guard = AddressGuard(allow_private=True, allow_hosts=frozenset({"a.example"}), deny=("203.0.113.0/24", "fd00::/8"))
    assert guard.permits("a.example", "10.0.0.1")
    assert not guard.permits_all("a.example")
    for address in ("203.0.113.7", "::ffff:203.0.113.7", "fd00::1", "nonsense"):
        assert not guard.permits("a.example", address), address
    with pytest.raises(AddressRefused, match=r"leads to 203\.0\.113\.7, an address that fetch\.deny forbids"):
        guard.check("a.example", "203.0.113.7")


@pytest.mark.parametrize("url", ["http://a.example:25/", "https://a.example:6667/x", "http://[2606:2800::1]:22/"])
def test_ports_that_browsers_refuse_are_refused(url: str) -> None:
    with pytest.raises(AddressRefused, match=r"Port \d+ is not for web pages"):
        AddressGuard(allow_private=True).check_port(url)
    AddressGuard(allow_hosts=frozenset({url.split("/")[2]})).check_port(url)


@pytest.mark.parametrize(
    "url", ["http://a.example/", "https://a.example:8443/", "http://[::25]/", "http://[::1]:8025/"]
)
def test_other_ports_are_not(url: str) -> None:
    AddressGuard().check_port(url)


def test_a_private_host_that_is_allowed_with_a_port_has_no_other() -> None:
    guard = AddressGuard(allow_hosts=frozenset({"127.0.0.1:8080", "[::1]:80", "shop.localhost:8080"}))
    for url in ("http://127.0.0.1:8080/", "http://[::1]/", "http://shop.localhost:8080/x"):
        guard.check_port(url)
    for host, address in (("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("shop.localhost", "127.0.0.1")):
        guard.check(host, address)
    for url in ("http://127.0.0.1/", "https://127.0.0.1/", "http://127.0.0.1:6379/", "http://[::1]:81/"):
        with pytest.raises(AddressRefused, match=r"allowed with port \d+ only"):
            guard.check_port(url)
    with pytest.raises(AddressRefused):
        guard.check("127.0.0.2", "127.0.0.2")


def test_a_public_host_that_is_allowed_with_a_port_keeps_its_others() -> None:
    guard = AddressGuard(allow_hosts=frozenset({"irc.example:6667", "8.8.8.8:6667"}))
    for url in ("http://irc.example:6667/", "https://irc.example/", "http://8.8.8.8:6667/", "http://8.8.8.8/"):
        guard.check_port(url)
