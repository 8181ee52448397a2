from __future__ import annotations

import asyncio
import socket

import pytest

from gossamer.errors import AddressRefused, DnsFailed
from gossamer.fetch.addresses import AddressGuard, GuardedResolver, is_public


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.5.4", "192.168.1.1",
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
