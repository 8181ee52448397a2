"""The state on Redis or Valkey: what is refused, what is told, what happens when memory is short."""

from __future__ import annotations

import asyncio
import socket
import struct
import subprocess
import sys
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import uuid4

import msgspec
import pytest
import redis.asyncio

from gossamer.backends.redis import connection
from gossamer.backends.redis.admission import filter_size
from gossamer.backends.redis.state import FORMAT, open_redis_state
from gossamer.clock import ServerClock, SystemClock
from gossamer.errors import BackendUnavailable, BadState, FrontierFull, GossamerError, Misconfigured
from gossamer.frontier.contract import DeadFilter, JobTerms, WorkerCard
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.events import NullSink
from gossamer.model.job import number_of
from gossamer.model.record import PageFacts
from gossamer.model.task import UrlState
from gossamer.project.jobs.worker_pool import WorkerPool
from gossamer.project.open import open_project
from gossamer.settings import load
from tests.conformance.frontiers import candidate
from tests.patience import PATIENCE
from tests.services.valkey import PASSWORD, running_valkey

UNLIMITED = SiteTerms(interval=None, concurrency=None)


def opened(server, *, project=None, address=None, **options):
    return open_redis_state(
        address or server.address(),
        ServerClock(SystemClock()),
        project=project or f"test-{uuid4().hex}",
        lease_duration=timedelta(seconds=30),
        terms_for=lambda site: UNLIMITED,
        **options,
    )


async def refusal(server, kind, **options):
    with pytest.raises(kind) as caught:
        async with opened(server, **options):
            pass
    message = str(caught.value)
    assert PASSWORD not in message
    assert "Traceback" not in message
    return message


# -- opening -----------------------------------------------------------------------------------------------------


async def test_a_server_that_is_not_there_is_named_with_what_to_do(valkey):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"redis://:{PASSWORD}@127.0.0.1:{nobody.getsockname()[1]}/0"
        said = await refusal(valkey, BackendUnavailable, address=address)
    assert "cannot be reached" in said
    assert "Start it, or set state" in said


async def test_a_wrong_password_is_refused_and_never_shown():
    with running_valkey("--requirepass", "right") as guarded:
        for address in (guarded.address(password=PASSWORD), guarded.address()):
            said = await refusal(guarded, Misconfigured, address=address)
            assert "password" in said
        async with opened(guarded, address=guarded.address(password="right")) as state:
            assert await state.jobs.jobs() == []


async def test_a_database_that_does_not_exist_is_refused(valkey):
    assert "no database of that number" in await refusal(valkey, Misconfigured, address=valkey.address(database=99))


async def test_a_server_of_another_kind_is_told_apart(valkey):
    async def chat(reader, writer):
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(chat, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        said = await refusal(valkey, BackendUnavailable, address=f"redis://127.0.0.1:{port}/0")
    assert "not a Redis or Valkey server" in said


async def test_a_server_that_never_answers_does_not_hang_us():
    server = await asyncio.start_server(lambda reader, writer: asyncio.Event().wait(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(BackendUnavailable, match="does not answer"):
            async with connection.open_server(f"redis://127.0.0.1:{port}/0", answer_seconds=0.3):
                pass


async def test_a_replica_is_away(valkey):
    with running_valkey("--replicaof", "127.0.0.1", str(valkey.port)) as replica:
        assert "read-only replica" in await refusal(replica, BackendUnavailable)


async def test_a_server_that_may_evict_the_queue_is_refused(valkey):
    with running_valkey("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as forgetful:
        said = await refusal(forgetful, Misconfigured)
        assert "allkeys-lru" in said
        assert "noeviction" in said


async def test_a_server_that_evicts_only_what_may_expire_is_trusted():
    with running_valkey("--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru", "--appendonly", "yes") as server:
        async with opened(server) as state:
            assert state.warnings == ()


async def test_a_server_that_keeps_nothing_on_disk_is_warned_about():
    with running_valkey() as forgetful:
        async with opened(forgetful) as state:
            assert "keeps nothing on disk" in state.warnings[0]
        forgetful.say("CONFIG", "SET", "save", "3600 1")
        async with opened(forgetful) as state:
            assert "snapshots only" in state.warnings[0]


async def test_a_version_that_is_too_old_is_refused(valkey):
    with pytest.raises(Misconfigured, match=r"needs Redis 6\.2 or newer"):
        async with connection.open_server(valkey.address(), oldest=(99, 0)):
            pass


async def test_a_state_of_a_newer_version_is_left_alone(valkey):
    async with opened(valkey, project="future"):
        valkey.say("HSET", "gossamer:{future}:book", "format", "999")
    assert "newer Gossamer" in await refusal(valkey, BadState, project="future")


async def test_a_state_from_before_the_first_release_is_refused_with_what_to_do(valkey):
    valkey.say("HSET", "gossamer:{unreleased}:book", "version", "11", "shards", "1", "fingerprints", "1")
    message = await refusal(valkey, BadState, project="unreleased")
    assert "before 0.1.0" in message
    assert "give the project another name" in message


async def test_a_project_with_fingerprints_of_another_version_is_refused_with_what_to_do(valkey):
    async with opened(valkey, project="other-prints"):
        valkey.say("HSET", "gossamer:{other-prints}:book", "fingerprints", "2")
    message = await refusal(valkey, BadState, project="other-prints")
    assert "fingerprints of version 2" in message
    assert "give the project another name" in message


async def test_a_worker_learns_with_its_next_beat_that_a_newer_version_has_opened_the_state(valkey):
    card = WorkerCard(name="w", host="h", pid=1, version="1", started_at=0.0, seen_at=0.0)
    async with opened(valkey, project="newer") as state:
        assert not await state.workers.beat(card)
        valkey.say("HSET", "gossamer:{newer}:book", "format", str(FORMAT + 1))
        with pytest.raises(BadState, match=f"newer Gossamer .format {FORMAT + 1}, this one knows {FORMAT}"):
            await state.workers.beat(card)


async def test_a_job_that_a_process_of_an_older_version_begins_meanwhile_is_listed(valkey):
    async with opened(valkey, project="both") as state:
        mine, _ = await state.jobs.open_job("mine", JobTerms(owner="key"), fresh=False)
        assert [job.id for job in await state.history.page(9)] == [mine.id]
        theirs, _ = await state.jobs.open_job("theirs", JobTerms(owner="key"), fresh=False)
        # version 9 knows nothing of the order by owner
        for whose in ("*", "key"):
            removed = valkey.say("ZREM", "gossamer:{both}:listed", f"{whose}\0{2:012d}{theirs.id}")
            assert "1" in removed
        assert [job.id for job in await state.history.page(9)] == [theirs.id, mine.id]
        assert [job.id for job in await state.history.page(9, owners=["key"])] == [theirs.id, mine.id]


async def test_rows_that_were_settled_in_the_longer_form_are_read_and_enter_again(valkey):
    # given a page that was settled by a version that kept all numbers of a row, and one that is settled now
    async with opened(valkey, project="longer") as state:
        job, _ = await state.jobs.open_job("books", JobTerms(), fresh=False)
        pages = [candidate("https://a.test/1"), candidate("https://a.test/2")]
        await state.frontier.add(job.id, pages)
        for lease in (await state.frontier.lease(job.id, "w", 9)).leases:
            await state.frontier.complete(lease, UrlState.DONE)
        key = f"gossamer:{{longer.0}}:{number_of(job.id)}:urls"
        client = redis.asyncio.Redis.from_url(valkey.address().replace("valkey://", "redis://"))
        async with client:
            short = await client.hget(key, pages[0].fingerprint)
            state_, site, priority, number, *rest, created, changed = struct.unpack_from(">BIidHHIHHdd", short)
            longer = struct.pack(
                ">BIiddIIIIIddd", state_ - 16, site, priority, 1.0, number, *rest, 0.0, created, changed
            )
            await client.hset(key, pages[0].fingerprint, longer + short[struct.calcsize(">BIidHHIHHdd") :])

        # then both tell the same story, and both can enter again
        for page in pages:
            [story] = await state.queue.story(page.site, page.fingerprint)
            assert (story.url, story.state, story.attempts) == (page.url, UrlState.DONE, 1)
        again = [msgspec.structs.replace(page, force=True) for page in pages]
        assert (await state.frontier.add(job.id, again)).queued == 2
        assert len((await state.frontier.lease(job.id, "w", 9)).leases) == 2


async def test_the_row_of_a_site_grows_with_what_is_known_of_it(valkey):
    sites, name = "gossamer:{fresh.0}:sites", b"a.test"
    async with opened(valkey, project="fresh") as state, connection.open_server(valkey.address()) as (server, _):
        job, _ = await state.jobs.open_job("books", JobTerms(), fresh=False)
        await state.frontier.add(job.id, [candidate("https://a.test/1")])
        assert len(await server.call("HGET", sites, "1")) == 36 + 1 + 2 + len(name)  # millions may be waiting

        [lease] = (await state.frontier.lease(job.id, "w", 1)).leases
        await state.frontier.complete(lease, UrlState.DONE)
        await state.frontier.too_often("a.test", rest=timedelta(seconds=9))
        facts = await state.queue.site("a.test")
        assert facts is not None
        assert (facts.answered_at > 0, facts.learned.refused_at > 0) == (True, True)
        await state.frontier.add(job.id, [candidate("https://a.test/2")])
        assert await state.queue.site("a.test") == facts


async def test_the_number_of_shards_cannot_change_while_a_project_lives(valkey):
    async with opened(valkey, project="spread", shards=3):
        pass
    assert "3 shards" in await refusal(valkey, Misconfigured, project="spread", shards=4)
    async with opened(valkey, project="spread"):
        assert "3" in valkey.say("HGET", "gossamer:{spread}:book", "shards")


@pytest.mark.parametrize("name", ["", "a b", "{x}", "x" * 100])
async def test_a_project_on_a_shared_server_needs_a_name(valkey, name):
    with pytest.raises(Misconfigured, match="project = "):
        async with open_redis_state(
            valkey.address(),
            ServerClock(SystemClock()),
            project=name,
            lease_duration=timedelta(seconds=30),
            terms_for=lambda site: UNLIMITED,
        ):
            pass


async def test_two_projects_on_one_server_do_not_see_each_other(valkey):
    async with opened(valkey) as one, opened(valkey) as two:
        job, _ = await one.jobs.open_job("books", JobTerms(), fresh=False)
        await one.frontier.add(job.id, [candidate("https://a.test/")])

        assert await two.jobs.jobs() == []
        other, resumed = await two.jobs.open_job("books", JobTerms(), fresh=False)
        assert not resumed
        assert (await two.frontier.lease(other.id, "w", 9)).leases == ()
        assert len((await one.frontier.lease(job.id, "w", 9)).leases) == 1


class DeafClient:
    """Does what Python 3.11's wait_for does in the driver: a cancellation that meets a result is forgotten."""

    async def execute_command(self, *command):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return b"OK"


async def test_a_cancellation_that_the_driver_forgets_is_not_lost():
    server = connection.Server(DeafClient(), "here:1", cluster=False)
    calling = asyncio.create_task(server.call("PING"))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


async def test_a_worker_with_nothing_to_do_ends_at_once(valkey, tmp_path):
    (tmp_path / "gossamer.toml").write_text(f'project = "idle-{uuid4().hex}"\nstate = "{valkey.address()}"\n')
    async with open_project(load(start=tmp_path, environ={})) as system:
        await asyncio.wait_for(WorkerPool(system, NullSink(), until_idle=True).run(), PATIENCE)


# -- running ------------------------------------------------------------------------------------------------------


async def test_what_is_not_ours_in_the_queue_goes_to_the_dead_letters(valkey):
    urls = "gossamer:{foreign.0}:1:urls"
    async with opened(valkey, project="foreign") as state, connection.open_server(valkey.address()) as (server, _):
        job, _ = await state.jobs.open_job("books", JobTerms(), fresh=False)
        await state.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(6)])
        for n, junk in ((1, b"\x80\x04\x95 a pickle"), (2, b"")):
            await server.call("HSET", urls, candidate(f"https://a.test/{n}").fingerprint, junk)
        for n, junk in ((3, b"\xc3\xc3"), (4, b"\xc1\xc1"), (5, b"\xc1\x00\x01x\xc1")):
            fingerprint = candidate(f"https://a.test/{n}").fingerprint
            row = await server.call("HGET", urls, fingerprint)
            await server.call("HSET", urls, fingerprint, row[: row.rindex(b"\x92")] + junk)

        batch = await state.frontier.lease(job.id, "w", 9)

        assert [lease.task.url for lease in batch.leases] == ["https://a.test/0"]
        letters = await state.queue.dead(DeadFilter())
        assert {letter.reason for letter in letters} == {"unreadable"}
        assert len(letters) == 5
        counts = await state.jobs.counts(job.id)
        assert (counts.dead, counts.leased, counts.open) == (5, 1, 1)
        assert counts.discovered == counts.open + counts.settled + counts.dropped + counts.duplicates


@asynccontextmanager
async def starving():
    """A server whose memory is full, with one task queued and one in progress."""
    with running_valkey("--maxmemory-policy", "noeviction") as server:
        async with opened(server) as state:
            job, _ = await state.jobs.open_job("books", JobTerms(), fresh=False)
            await state.frontier.add(job.id, [candidate("https://a.test/1"), candidate("https://b.test/2")])
            (lease,) = (await state.frontier.lease(job.id, "w", 1)).leases
            server.say("CONFIG", "SET", "maxmemory", "1mb")
            yield state, job, lease
            server.say("CONFIG", "SET", "maxmemory", "0")


async def test_out_of_memory_stops_producers_and_lets_workers_go_on():
    async with starving() as (state, job, lease):
        with pytest.raises(FrontierFull, match="out of memory"):
            await state.frontier.add(job.id, [candidate("https://a.test/3")])

        assert await state.frontier.renew([lease]) == []
        with pytest.raises(BackendUnavailable, match="out of memory"):
            await state.frontier.complete(lease, UrlState.DONE, "", [candidate("https://a.test/4")])
        assert (await state.jobs.counts(job.id)).leased == 1
        await state.frontier.complete(lease, UrlState.DONE)
        (other,) = (await state.frontier.lease(job.id, "w", 9)).leases
        await state.frontier.retry(other, timedelta(0), "timeout")
        (again,) = (await state.frontier.lease(job.id, "w", 9)).leases
        await state.frontier.bury(again, "http-404", "gone")

        counts = await state.jobs.counts(job.id)
        assert (counts.done, counts.dead, counts.dropped, counts.open) == (1, 1, 0, 0)
        assert counts.discovered == counts.open + counts.settled + counts.dropped + counts.duplicates


async def test_out_of_memory_a_refused_url_leaves_its_queue_where_it_was():
    with running_valkey("--maxmemory-policy", "noeviction") as server:
        async with opened(server) as state:
            job, _ = await state.jobs.open_job("books", JobTerms(max_urls_per_pattern=None), fresh=False)
            await state.frontier.add(job.id, [candidate("https://a.test/1")])
            server.say("CONFIG", "SET", "maxmemory", "1mb")
            with pytest.raises(FrontierFull, match="out of memory"):
                await state.frontier.add(job.id, [candidate("https://a.test/2", priority=5)])
            server.say("CONFIG", "SET", "maxmemory", "0")

            (lease,) = (await state.frontier.lease(job.id, "w", 9)).leases
            assert lease.task.url == "https://a.test/1"
            assert (await state.jobs.counts(job.id)).discovered == 1


async def test_out_of_memory_a_project_can_still_be_opened():
    with running_valkey("--maxmemory-policy", "noeviction") as server:
        async with opened(server, project="books") as state:
            job, _ = await state.jobs.open_job("books", JobTerms(), fresh=False)
        server.say("CONFIG", "SET", "maxmemory", "1mb")
        async with opened(server, project="books") as state:
            assert [known.id for known in await state.jobs.jobs()] == [job.id]


async def test_a_server_that_loses_our_scripts_gets_them_again(valkey):
    async with opened(valkey) as state:
        job, _ = await state.jobs.open_job("books", JobTerms(), fresh=False)
        valkey.say("SCRIPT", "FLUSH")
        assert (await state.frontier.add(job.id, [candidate("https://a.test/")])).queued == 1


async def test_a_state_says_what_a_power_cut_may_take_from_it():
    with running_valkey("--appendonly", "yes", "--appendfsync", "always") as server:
        async with opened(server) as state:
            await state.durable()
            assert state.may_lose == ""
        server.say("CONFIG", "SET", "appendfsync", "everysec")
        async with opened(server) as state:
            assert "appendfsync everysec" in state.may_lose
        server.say("ACL", "SETUSER", "default", "-config")
        async with opened(server) as state:
            assert "unknown" in state.may_lose


async def test_a_server_that_was_restarted_is_found_again():
    with running_valkey("--appendonly", "yes", "--appendfsync", "always") as server:
        async with opened(server) as state:
            job, _ = await state.jobs.open_job("books", JobTerms(), fresh=False)
            await state.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(3)])
            (lease,) = (await state.frontier.lease(job.id, "w", 1)).leases
            server.kill()
            with pytest.raises(BackendUnavailable):
                await state.frontier.complete(lease, UrlState.DONE)
            server.start()

            await state.frontier.complete(lease, UrlState.DONE)

            counts = await state.jobs.counts(job.id)
            assert (counts.done, counts.queued) == (1, 2)


def test_every_error_of_the_driver_becomes_one_of_ours():
    from redis import exceptions

    names = [name for name in dir(exceptions) if isinstance(getattr(exceptions, name), type)]
    kinds = [
        getattr(exceptions, name) for name in names if issubclass(getattr(exceptions, name), exceptions.RedisError)
    ]
    # Those are told by the server or the line; the rest are mistakes in the use of the driver.
    ours = [kind for kind in kinds if issubclass(kind, exceptions.ConnectionError | exceptions.ResponseError)]
    assert len(ours) > 10
    for kind in ours:
        try:
            error = kind("it said no")
        except (TypeError, ValueError, IndexError):
            error = kind("1 127.0.0.1:7000")  # a redirect names its slot and node
        with pytest.raises(GossamerError), connection.translated("here:1"):
            raise error


# -- the filter ------------------------------------------------------------------------------------------------------


class Remembered:
    """A record store that knows some pages, for the second look."""

    def __init__(self):
        self.known = set()

    async def facts(self, fingerprints):
        return {
            one: PageFacts(fingerprint=one, url="", job="", fetched_at=0.0, status=200)
            for one in fingerprints
            if one in self.known
        }


async def test_a_filter_errs_as_rarely_as_it_was_told_to(valkey):
    terms = JobTerms(dedup="bloom", dedup_expected=7_000, dedup_error=0.01, max_urls_per_pattern=None)
    async with opened(valkey) as state:
        job, _ = await state.jobs.open_job("big", terms, fresh=False)
        first = await state.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(5_000)])
        while leases := (await state.frontier.lease(job.id, "w", 500)).leases:
            await asyncio.gather(*(state.frontier.complete(lease, UrlState.DONE) for lease in leases))
        again = await state.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(5_000)])
        fresh = await state.frontier.add(job.id, [candidate(f"https://b.test/{n}") for n in range(2_000)])

        assert first.queued + first.duplicates == 5_000
        assert first.duplicates < 50
        assert again.queued == 0
        assert 0 < fresh.duplicates < 2_000 * 0.015
        assert [url async for url, _, _ in state.queue.urls(job.id, UrlState.DONE)] == []
        counts = await state.jobs.counts(job.id)
        assert counts.discovered == counts.open + counts.settled + counts.dropped + counts.duplicates


async def test_a_second_look_lets_in_what_the_filter_wrongly_calls_known(valkey):
    records = Remembered()
    terms = JobTerms(dedup="bloom", dedup_expected=1, dedup_error=0.4, dedup_check=True, max_urls_per_pattern=None)
    async with opened(valkey, records=records) as state:
        job, _ = await state.jobs.open_job("sure", terms, fresh=False)
        for start in range(0, 3_000, 500):
            await state.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(start, start + 500)])
        seen = set()
        while leases := (await state.frontier.lease(job.id, "w", 500)).leases:
            for lease in leases:
                assert lease.task.url not in seen
                seen.add(lease.task.url)
                records.known.add(lease.task.fingerprint)
            await asyncio.gather(*(state.frontier.complete(lease, UrlState.DONE) for lease in leases))
        again = await state.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(500)])

        assert len(seen) == 3_000
        assert again.queued == 0


def test_the_filter_takes_the_memory_that_theory_says():
    bits, hashes = filter_size(10_000_000, 0.001)
    assert 14 < bits / 10_000_000 < 15
    assert hashes == 10


def test_a_client_that_is_not_installed_is_named_with_its_command():
    program = "import sys; sys.modules['redis'] = None\nimport gossamer.backends.redis.connection"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert "MissingExtra" in said.stderr
    assert "pip install 'gossamer[fleet]'" in said.stderr
