"""Jobs that end are told to the address that was named: signed, again and again until it is taken, and only there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.access.contract import Callback, CallbackState
from gossamer.access.webhooks import PAUSES, new_secret
from gossamer.compat.firecrawl.documents import document_of
from gossamer.errors import BackendUnavailable
from gossamer.project.access.callback_delivery import AT_ONCE_PER_HOST, LOOKED_AT, Deliverer, callback_transport
from gossamer.project.pages.results import PageReader
from tests.patience import until
from tests.sites import moving
from tests.sites.running import park

from .receiver import Receiver
from .receiver import receiver as receiver
from .serving import QUICK_LOOK, Served, serving, settings_of

ALLOWED = ["site0.localhost", "receiver.localhost"]


@asynccontextmanager
async def delivering(door: Served) -> AsyncIterator[Deliverer]:
    """What a server does beside answering."""
    async with PageReader(door.project) as pages, callback_transport(door.project.settings) as transport:
        deliverer = Deliverer(door.project, pages, transport, look=QUICK_LOOK, document=document_of)
        working = asyncio.create_task(deliverer.run())
        try:
            yield deliverer
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


async def _listed(door: Served, **query: Any) -> list[dict[str, Any]]:
    return (await door.get("/api/v1/callbacks", **query)).json()


async def _reached(door: Served, state: str, tries: int = 0) -> dict[str, Any]:
    """The one callback, when it is in that state and was tried at least so many times."""

    async def look() -> dict[str, Any] | None:
        (found,) = await _listed(door)
        return found if found["state"] == state and found["tries"] >= tries else None

    found = await until(look, f"the callback is {state}")
    assert found is not None
    return found


async def _hurry(door: Served) -> None:
    """What waits for its next try is due now. What is due already may be under way, and is left alone."""
    book, now = door.project.state.callbacks, door.project.clock.now()
    for one in await book.due(inf, 10):
        if one.next_at > now:
            await book.keep(msgspec.structs.replace(one, next_at=1.0))


async def test_a_batch_that_has_ended_is_told_once_with_a_signature(tmp_path: Path, receiver: Receiver) -> None:
    with park(pages=5) as site:
        async with serving(settings_of(tmp_path, fetch__allow_hosts=ALLOWED)) as door, delivering(door):
            urls = [site.url(path=f"/page/{n}") for n in range(1, 4)]
            wish = {"urls": urls, "formats": ["metadata"], "callback_url": receiver.url}
            begun = (await door.post("/api/v1/batch", wish)).json()
            delivered = await _reached(door, "delivered")
            secret = (await door.get("/api/v1/callback-secret")).json()["secret"]

    (one,) = receiver.deliveries
    assert one.is_signed_with(secret)
    assert not one.is_signed_with(new_secret())
    assert one.id == delivered["id"]
    assert one.told["type"] == "job.completed"
    assert one.told["data"]["job_id"] == begun["job_id"]
    assert [page["url"] for page in one.told["data"]["results"]] == urls
    assert (delivered["tries"], delivered["status"]) == (1, 204)


async def test_results_that_are_long_are_linked(tmp_path: Path, receiver: Receiver) -> None:
    with park(pages=3, body_bytes=30_000) as site:
        settings = settings_of(
            tmp_path, fetch__allow_hosts=ALLOWED, server__public_url="https://scrape.example/", politeness__robots=False
        )
        async with serving(settings) as door, delivering(door):
            wish = {"url": site.url(path="/page/1"), "callback_url": receiver.url}
            begun = (await door.post("/api/v1/scrape/async", wish)).json()
            await receiver.has(1)

    told = receiver.deliveries[0].told["data"]
    assert told["result"] is None
    assert told["results_url"] == f"https://scrape.example/api/v1/jobs/{begun['job_id']}/results"
    assert len(receiver.deliveries[0].body) < 20_000


async def test_a_message_that_was_not_taken_comes_again_with_the_same_id_and_content(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.answers = [(500, {}), (302, {"location": "http://127.0.0.1:1/"}), (429, {"retry-after": "3600"})]
    with park(pages=3) as site:
        async with serving(settings_of(tmp_path, fetch__allow_hosts=ALLOWED)) as door, delivering(door):
            await door.post("/api/v1/batch", {"urls": [site.url()], "callback_url": receiver.url})
            pauses = []
            for tries in (1, 2, 3):
                found = await _reached(door, "due", tries)
                (kept,) = await door.project.state.callbacks.due(inf, 1)
                pauses.append(kept.next_at - door.project.clock.now())
                assert found["message"] == f"The receiver answered {[500, 302, 429][tries - 1]}."
                await _hurry(door)
            await _reached(door, "delivered")

    assert len({(one.id, one.body) for one in receiver.deliveries}) == 1
    assert len(receiver.deliveries) == 4  # the redirect was not followed
    assert pauses[0] <= PAUSES[0].total_seconds() * 1.2
    assert pauses[2] > PAUSES[2].total_seconds()  # it asked for an hour


async def test_one_that_is_given_up_can_be_sent_again(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [(500, {})] * (len(PAUSES) + 1)
    with park(pages=3) as site:
        async with serving(settings_of(tmp_path, fetch__allow_hosts=ALLOWED)) as door, delivering(door):
            await door.post("/api/v1/batch", {"urls": [site.url()], "callback_url": receiver.url})

            async def has_failed() -> bool:
                return (await _listed(door))[0]["state"] == "failed"

            await until(has_failed, between=lambda: _hurry(door))
            (failed,) = await _listed(door, state="failed")
            assert failed["tries"] == len(PAUSES) + 1
            again = await door.post(f"/api/v1/callbacks/{failed['id']}/replay")
            assert again.json()["state"] == "due"
            await _reached(door, "delivered")

    assert len(receiver.ids()) == 1


async def test_a_receiver_that_is_gone_is_asked_no_more(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [(410, {})]
    with park(pages=4) as site:
        async with serving(settings_of(tmp_path, fetch__allow_hosts=ALLOWED)) as door:
            for n in (1, 2):
                wish = {"urls": [site.url(path=f"/page/{n}")], "callback_url": receiver.url}
                job = (await door.post("/api/v1/batch", wish)).json()["job_id"]

                async def is_complete(job: str = job) -> bool:
                    return (await door.get(f"/api/v1/jobs/{job}")).json()["status"] == "completed"

                await until(is_complete)
            async with PageReader(door.project) as pages, callback_transport(door.project.settings) as transport:
                deliverer = Deliverer(door.project, pages, transport)
                await deliverer.deliver_due()  # the two leave together

                async def all_ended() -> bool:
                    return all(one["state"] in ("failed", "delivered") for one in await _listed(door))

                await until(all_ended)
            states = sorted(one["state"] for one in await _listed(door))

    assert states in (["delivered", "failed"], ["failed", "failed"])  # the other was under way, or not yet
    assert len(receiver.deliveries) == states.count("delivered") + 1


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/", "http://[::ffff:7f00:1]/", "http://2130706433/", "http://169.254.169.254/latest", "ftp://x.test/",
     "http://user:pw@x.test/", "http://localhost/", "http://0x7f.1/", "not an address"],
)  # fmt: skip
async def test_an_address_that_may_not_be_called_begins_no_job(tmp_path: Path, url: str) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        wish = {"urls": ["https://shop.test/"], "callback_url": url}
        answer = await door.post("/api/v1/batch", wish)

        assert answer.status_code == 422, answer.text
        assert await door.project.state.jobs.jobs() == []


async def test_a_name_that_leads_to_a_private_address_is_never_dialled(tmp_path: Path, receiver: Receiver) -> None:
    with park(pages=3) as site:
        async with serving(settings_of(tmp_path, fetch__allow_hosts=["site0.localhost"])) as door, delivering(door):
            # given a callback that was entered when the project still allowed its host
            job = (await door.post("/api/v1/batch", {"urls": [site.url()]})).json()["job_id"]
            book = door.project.state.callbacks
            await book.enter(Callback(id="msg_1", owner="k", url=receiver.url, job=job, made_at=0.0))
            failed = await _reached(door, "failed")

    assert receiver.deliveries == []
    assert "private" in failed["message"] or "address" in failed["message"]


async def test_a_page_with_characters_that_are_none_holds_up_no_callback(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = '{{"@context": "https://schema.org", "@type": "Product", "name": "Lamp \\ud800"}}'
    page = f'<html><script type="application/ld+json">{product}</script><h1>Lamp</h1></html>'
    monkeypatch.setattr(moving, "OLD", page)
    with moving.moving_shop(2) as shop:
        settings = settings_of(tmp_path, fetch__allow_hosts=["127.0.0.1", "receiver.localhost"])
        async with serving(settings) as door, delivering(door):
            wish = {"urls": [f"{shop.url}p/1"], "formats": ["product"], "callback_url": receiver.url}
            begun = (await door.post("/api/v1/batch", wish)).json()
            one = await _reached(door, "delivered")
            shown = (await door.get(f"/api/v1/callbacks/{one['id']}")).json()
    (result,) = receiver.deliveries[0].told["data"]["results"]
    assert "Lamp" in str(result["data"]["product"])
    assert shown["body"]["data"]["job_id"] == begun["job_id"]


async def test_one_that_was_given_up_before_it_was_written_is_written_when_it_is_sent_again(
    tmp_path: Path, receiver: Receiver
) -> None:
    with park(pages=3) as site:
        async with serving(settings_of(tmp_path, fetch__allow_hosts=ALLOWED)) as door, delivering(door):
            job = (await door.post("/api/v1/batch", {"urls": [site.url()]})).json()["job_id"]
            # given a callback to a receiver that answered 410 to another one while the job ran
            failed = Callback(
                id="msg_1", owner="k", url=receiver.url, job=job, made_at=0.0, state=CallbackState.FAILED, ended_at=1.0
            )
            await door.project.state.callbacks.keep(failed)
            await door.post("/api/v1/callbacks/msg_1/replay")
            await _reached(door, "delivered")
    assert receiver.deliveries[0].told["data"]["job_id"] == job


async def test_a_receiver_whose_tls_is_broken_is_asked_again(tmp_path: Path, receiver: Receiver) -> None:
    with park(pages=3) as site:
        async with serving(settings_of(tmp_path, fetch__allow_hosts=ALLOWED)) as door, delivering(door):
            broken = receiver.url.replace("http://", "https://")
            await door.post("/api/v1/batch", {"urls": [site.url()], "callback_url": broken})
            found = await _reached(door, "due", tries=1)

    assert (found["state"], found["tries"]) == ("due", 1), found["message"]


async def test_keys_see_their_own_callbacks_and_secrets(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        mine, other = await door.new_key("mine", "scrape"), await door.new_key("other", "scrape", "jobs")
        wish = {"urls": ["https://shop.test/"], "callback_url": "https://there.test/in"}
        assert (await door.post("/api/v1/batch", wish, mine)).status_code == 202
        (own,) = (await door.get("/api/v1/callbacks", mine)).json()

        assert (await door.get("/api/v1/callbacks", other)).json() == []
        assert (await door.get(f"/api/v1/callbacks/{own['id']}", other)).status_code == 404
        assert (await door.post(f"/api/v1/callbacks/{own['id']}/replay", key=other)).status_code == 404
        assert (await door.post(f"/api/v1/callbacks/{own['id']}/replay", key=mine)).status_code == 409
        secrets = [(await door.get("/api/v1/callback-secret", key)).json()["secret"] for key in (mine, other)]
        assert secrets[0] != secrets[1]
        turned = (await door.post("/api/v1/callback-secret/rotate", key=mine)).json()
        assert turned["before"] == secrets[0] != turned["secret"]


async def test_one_that_is_tried_while_the_next_list_is_read_is_not_sent_again(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.answers = [(500, {})]
    settings = settings_of(tmp_path, fetch__allow_hosts=ALLOWED)
    async with serving(settings, worker=False) as door, PageReader(door.project) as pages:
        book = door.project.state.callbacks
        due = type(book).due

        async def read_late(book: Any, *words: Any) -> list[Callback]:
            """The list as it was before the receiver answered."""
            found = await due(book, *words)

            async def was_tried() -> bool:
                one = await book.callback(found[0].id)
                return one is None or one.tries > 0

            if found:
                await until(was_tried)
            return found

        await book.enter(_due("msg_once", receiver.url, door.project.clock.now()))
        async with callback_transport(settings) as transport:
            deliverer = Deliverer(door.project, pages, transport)
            await deliverer.deliver_due()
            monkeypatch.setattr(type(book), "due", read_late)
            await deliverer.deliver_due()
            await book.enter(_due("msg_next", receiver.url, door.project.clock.now()))
            monkeypatch.undo()
            await deliverer.deliver_due()
            await receiver.has(2)

    assert sorted(one.id for one in receiver.deliveries) == ["msg_next", "msg_once"]


async def test_that_callbacks_wait_for_a_store_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(settings_of(tmp_path, fetch__allow_hosts=ALLOWED), worker=False) as door:
        book, looks = door.project.state.callbacks, 0

        async def away(book: Any, *words: Any) -> list[Callback]:
            nonlocal looks
            looks += 1
            raise BackendUnavailable("The queue is away.")

        with monkeypatch.context() as patch:
            patch.setattr(type(book), "waiting", away)
            async with delivering(door):
                await until(lambda: looks >= 5)

    assert [one.getMessage() for one in caplog.records] == ["Callbacks wait: The queue is away."]


async def test_a_receiver_that_is_slow_holds_up_nobody_else(tmp_path: Path, receiver: Receiver) -> None:
    # given more messages for one receiver than are looked at, which it takes and never answers
    taken = 0

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        taken += 1
        await reader.read()

    slow = await asyncio.start_server(swallow, "127.0.0.1", 0)
    url = f"http://slow.localhost:{slow.sockets[0].getsockname()[1]}/"
    settings = settings_of(tmp_path, fetch__allow_hosts=[*ALLOWED, "slow.localhost"])
    async with slow, serving(settings, worker=False) as door:
        book, now = door.project.state.callbacks, door.project.clock.now()
        await asyncio.gather(*(book.enter(_due(f"msg_slowhost{n}", url, now - 60)) for n in range(LOOKED_AT + 5)))
        await asyncio.gather(*(book.enter(_due(f"msg_quickone{n}", receiver.url, now)) for n in range(30)))
        async with delivering(door):
            await receiver.has(30)
        left = await book.pending()

    assert receiver.ids() == {f"msg_quickone{n}" for n in range(30)}
    assert 1 <= taken <= AT_ONCE_PER_HOST
    assert left >= LOOKED_AT + 5


async def test_addresses_of_one_host_share_its_places(tmp_path: Path, receiver: Receiver) -> None:
    # given messages for two addresses of a host that never answers
    taken = 0

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        taken += 1
        await reader.read()

    slow = await asyncio.start_server(swallow, "127.0.0.1", 0)
    url = f"http://slow.localhost:{slow.sockets[0].getsockname()[1]}"
    settings = settings_of(tmp_path, fetch__allow_hosts=[*ALLOWED, "slow.localhost"])
    async with slow, serving(settings, worker=False) as door:
        book, now = door.project.state.callbacks, door.project.clock.now()
        for number in range(AT_ONCE_PER_HOST):
            await book.enter(_due(f"msg_onepath_{number}", f"{url}/one", now - 60))
            await book.enter(_due(f"msg_another_{number}", f"{url}/another", now - 60))
        await asyncio.gather(*(book.enter(_due(f"msg_quickone{n}", receiver.url, now)) for n in range(30)))
        async with delivering(door):
            await receiver.has(30)

    # then no more of them are under way than one host may have
    assert 1 <= taken <= AT_ONCE_PER_HOST


def _due(id: str, url: str, at: float) -> Callback:
    return Callback(id=id, owner="", url=url, made_at=at, body="{}", state=CallbackState.DUE, next_at=at)
