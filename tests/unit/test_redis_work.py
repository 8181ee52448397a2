"""Work on Redis at its edges: very many links, full queues, full memory, lines that break, strangers in the queue."""

from __future__ import annotations

import asyncio

import pytest
import redis.asyncio

from gossamer.backends.redis import connection, leasing
from gossamer.backends.redis import frontier as redis_frontier
from gossamer.backends.redis.admission import filter_size
from gossamer.errors import BackendUnavailable, LeaseLost, Misconfigured
from gossamer.frontier.contract import DeadFilter, JobTerms
from gossamer.frontier.state_rows import DumpedUrl
from gossamer.model.route import ProxyOutcome
from gossamer.model.task import UrlState
from gossamer.routing.proxies.contract import ProxyReport, RestTerms
from gossamer.routing.proxies.health import FORGOTTEN, RENEWED
from tests.conformance.frontiers import candidate, redis_lab
from tests.services.valkey import running_valkey


def links(number, site="a.test"):
    return [candidate(f"https://{site}/{n}") for n in range(number)]


def balanced(counts):
    return counts.discovered == counts.open + counts.settled + counts.dropped + counts.duplicates


async def with_one_in_progress(lab, **terms):
    job = await lab.job(**terms)
    await lab.frontier.add(job.id, [candidate("https://a.test/start")])
    [lease] = (await lab.frontier.lease(job.id, "w", 1)).leases
    return job, lease


async def everything(server, project):
    """All that the server holds of a project, names and values."""
    async with redis.asyncio.from_url(server.address()) as client:
        reads = {b"string": client.get, b"hash": client.hgetall, b"set": client.smembers}
        found = []
        async for key in client.scan_iter(f"*{project}*"):
            kind = await client.type(key)
            read = reads.get(kind, lambda key: client.zrange(key, 0, -1))
            found.append(repr((key, await read(key))))
    return "\n".join(found)


# -- what is forgotten ---------------------------------------------------------------------------------------------


async def test_an_proxy_that_is_forgotten_leaves_nothing_on_the_server(valkey):
    async with redis_lab(valkey.address(), project="forgetful") as lab:
        terms = RestTerms(cooldown=60.0, max_cooldown=600.0)
        old = ProxyReport(proxy="old-proxy", outcome=ProxyOutcome.BANNED, site="old.example")
        await lab.proxies.report("pool", [old], terms)
        await lab.proxies.renew("pool", "old-session", 0)
        held = await everything(valkey, "forgetful")
        assert all(word in held for word in ("old-proxy", "old.example", "old-session"))

        # when others are used a month later
        lab.clock.advance(max(FORGOTTEN, RENEWED) + 1)
        await lab.proxies.report("pool", [ProxyReport(proxy="new-proxy", outcome=ProxyOutcome.OK)], terms)
        await lab.proxies.renew("pool", "new-session", 0)

        # then rows and indexes of the old ones are gone
        held = await everything(valkey, "forgetful")
        assert "new-proxy" in held
        assert [word for word in ("old-proxy", "old.example", "old-session") if word in held] == []


# -- many links ----------------------------------------------------------------------------------------------------


async def test_a_page_with_thousands_of_links_that_only_the_filter_knows_is_settled(valkey):
    async with redis_lab(valkey.address()) as lab:
        # given pages that are done, so that nothing but the filter remembers them
        job, lease = await with_one_in_progress(lab, dedup="bloom", dedup_expected=100_000, max_urls_per_pattern=None)
        await lab.frontier.complete(lease, UrlState.DONE, "", links(9_000))
        for one in links(9_000):
            await lab.jobs.server.call("HDEL", lab.jobs.keys.in_shard(0, "1:urls"), one.fingerprint)
        await lab.frontier.add(job.id, [candidate("https://b.test/", priority=9)])
        [lease] = (await lab.frontier.lease(job.id, "w", 1)).leases

        # when a page links to all of them, also as one script would see it
        packed = lab.frontier.packed(await lab.frontier.job(job.id), links(9_000), None)
        answer = await lab.jobs.server.run(
            "add", lab.jobs.keys.of_job(0, 1), "", -1, 0, -1, -1, -1, -1, *bloom(100_000), packed
        )
        added = await lab.frontier.complete(lease, UrlState.DONE, "", links(9_000))

        # then they are duplicates
        assert len(answer[3]) == 9_000
        assert (added.queued, added.duplicates) == (0, 9_000)
        assert (await lab.jobs.counts(job.id)).done == 2


def bloom(expected):
    return filter_size(expected, JobTerms().dedup_error)


async def test_a_site_that_cannot_be_read_spoils_no_settlement_halfway(valkey):
    async with redis_lab(valkey.address()) as lab:
        # given two pages in progress, one of them of a site whose row is damaged
        job = await lab.job()
        await lab.frontier.add(job.id, [candidate("https://a.test/"), candidate("https://b.test/")])
        good, bad = (await lab.frontier.lease(job.id, "w", 2)).leases
        sites = lab.jobs.keys.in_shard(0, "sites")
        number = await lab.jobs.server.call("HGET", lab.jobs.keys.in_shard(0, "numbers"), bad.task.site)
        row = await lab.jobs.server.call("HGET", sites, number)
        await lab.jobs.server.call("HSET", sites, number, b"junk")

        # when both are settled in one call
        done = [lab.frontier.complete(one, UrlState.DONE) for one in (good, bad)]
        said = await asyncio.gather(*done, return_exceptions=True)
        assert [type(one) for one in said] == [BackendUnavailable, BackendUnavailable]

        # then nothing was changed, and once the row is mended both can end
        assert (await lab.jobs.counts(job.id)).leased == 2
        await lab.jobs.server.call("HSET", sites, number, row)
        for one in (good, bad):
            await lab.frontier.complete(one, UrlState.DONE)
        counts = await lab.jobs.counts(job.id)
        assert (counts.done, counts.leased) == (2, 0)


async def test_links_beyond_what_one_script_takes_enter_in_their_order(valkey):
    async with redis_lab(valkey.address()) as lab:
        job, lease = await with_one_in_progress(lab, max_urls_per_pattern=None)

        added = await lab.frontier.complete(lease, UrlState.DONE, "", links(1_234))

        assert added.queued == 1_234
        batch = await lab.frontier.lease(job.id, "w", 1_234)
        assert [one.task.url for one in batch.leases] == [one.url for one in links(1_234)]
        assert balanced(await lab.jobs.counts(job.id))


async def test_a_worker_that_lost_its_lease_adds_none_of_its_many_links(valkey):
    async with redis_lab(valkey.address()) as lab:
        job, lease = await with_one_in_progress(lab)
        lab.clock.advance(31)
        with pytest.raises(LeaseLost):
            await lab.frontier.complete(lease, UrlState.DONE, "", links(1_234))
        assert (await lab.jobs.counts(job.id)).discovered == 1


async def test_settlements_go_together_only_as_far_as_their_links_are_few():
    sent = []

    async def send(items):
        sent.append(list(items))
        return [[item] for item in items]

    together = redis_frontier.CallBatcher(send)
    weights = [900, 900, 900, 5_000, *([0] * 70)]
    items = [str(n).encode() for n in range(len(weights))]
    answers = await asyncio.gather(*map(together.give, items, weights))

    assert answers == [[item] for item in items]
    assert [len(group) for group in sent] == [2, 1, 1, 64, 6]


# -- no room ------------------------------------------------------------------------------------------------------


async def test_links_to_other_shards_keep_to_the_bound_of_the_queue(valkey):
    async with redis_lab(valkey.address(), shards=4) as lab:
        job, lease = await with_one_in_progress(lab, max_queued=10)
        found = [candidate(f"https://s{n}.test/") for n in range(500)]

        added = await lab.frontier.complete(lease, UrlState.DONE, "", found)

        counts = await lab.jobs.counts(job.id)
        assert (added.queued, added.dropped) == (500, 0)
        assert (counts.queued, counts.postponed) == (10, 490)
        assert balanced(counts)


async def test_out_of_memory_a_page_with_links_to_other_shards_is_not_settled_until_they_have_room():
    with running_valkey("--maxmemory-policy", "noeviction") as server:
        async with redis_lab(server.address(), shards=4) as lab:
            job, lease = await with_one_in_progress(lab)
            found = [candidate(f"https://s{n}.test/") for n in range(50)]
            server.say("CONFIG", "SET", "maxmemory", "1mb")
            with pytest.raises(BackendUnavailable, match="out of memory"):
                await lab.frontier.complete(lease, UrlState.DONE, "", found)
            server.say("CONFIG", "SET", "maxmemory", "0")
            counts = await lab.jobs.counts(job.id)
            assert (counts.done, counts.leased) == (0, 1)

            await lab.frontier.complete(lease, UrlState.DONE, "", found)

            counts = await lab.jobs.counts(job.id)
            assert (counts.done, counts.queued, counts.dropped) == (1, 50, 0)
            assert balanced(counts)


# -- long names -----------------------------------------------------------------------------------------------------


async def test_a_site_with_a_very_long_name_is_a_site_like_others(valkey):
    name = "a" * 3_000 + ".test"
    async with redis_lab(valkey.address()) as lab, redis_lab(valkey.address()) as other:
        job = await lab.job()
        await lab.frontier.add(job.id, [candidate(f"https://{name}/")])
        async for items in lab.stream.dump():
            await other.stream.load(items)
            assert all(item.site == name for item in items if isinstance(item, DumpedUrl))
        for one in (lab, other):
            [lease] = (await one.frontier.lease(job.id, "w", 1)).leases
            assert lease.task.site == name


async def test_a_worker_with_a_name_too_long_for_a_row_is_refused(valkey):
    async with redis_lab(valkey.address()) as lab:
        job = await lab.job()
        await lab.frontier.add(job.id, links(1))
        with pytest.raises(Misconfigured, match="Shorten it"):
            await lab.frontier.lease(job.id, "w" * 256, 1)
        assert len((await lab.frontier.lease(job.id, "w" * 255, 1)).leases) == 1


# -- lines that break -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("script", ["prepare", "serve"])
async def test_what_was_granted_before_the_line_broke_is_handed_over(valkey, script, shards):
    async with redis_lab(valkey.address(), shards=shards) as lab:
        # given work that takes several rounds, and a line that breaks after the first
        lab.frontier.dispatcher.sites_at_once = 2
        job = await lab.job()
        await lab.frontier.add(job.id, [candidate(f"https://s{n}.test/", priority=n) for n in range(20)])
        run, calls = lab.jobs.server.run, []

        async def breaking(name, *rest):
            calls.append(name)
            if name == script and calls.count(name) > (shards if script == "prepare" else 1):
                raise BackendUnavailable("The line broke.")
            return await run(name, *rest)

        lab.jobs.server.run = breaking
        batch = await lab.frontier.lease(job.id, "w", 20)
        lab.jobs.server.run = run

        # then nothing is in the hand of nobody
        assert 0 < len(batch.leases) < 20
        assert (await lab.jobs.counts(job.id)).leased == len(batch.leases)


async def test_what_was_granted_is_handed_over_though_the_lock_cannot_be_given_back(valkey):
    async with redis_lab(valkey.address(), shards=3) as lab:
        job = await lab.job(limit=5)
        await lab.frontier.add(job.id, links(2))
        run = lab.jobs.server.run

        async def breaking(name, *rest):
            if name == "unlock":
                raise BackendUnavailable("The line broke.")
            return await run(name, *rest)

        lab.jobs.server.run = breaking
        batch = await lab.frontier.lease(job.id, "w", 2)
        lab.jobs.server.run = run
        assert len(batch.leases) == 2


async def test_a_lock_that_became_somebody_elses_is_left_alone(valkey):
    async with redis_lab(valkey.address(), shards=3) as lab:
        job = await lab.job(limit=5)
        key, call = lab.jobs.keys.book("lock:1"), lab.jobs.server.call
        async with lab.frontier.dispatcher.alone(await lab.frontier.job(job.id)):
            assert 0 < await call("TTL", key) <= leasing.LOCK_SECONDS
            await call("SET", key, "another")
        assert await call("GET", key) == b"another"
        await call("DEL", key)
        async with lab.frontier.dispatcher.alone(await lab.frontier.job(job.id)):
            pass
        assert await call("GET", key) is None


# -- strangers and the dead ------------------------------------------------------------------------------------------


async def test_tasks_behind_many_strangers_are_still_handed_out(valkey):
    async with redis_lab(valkey.address()) as lab:
        job = await lab.job()
        await lab.frontier.add(job.id, links(10))
        for one in links(9):
            await lab.jobs.server.call("HSET", lab.jobs.keys.in_shard(0, "1:urls"), one.fingerprint, b"junk")

        batch = await lab.frontier.lease(job.id, "w", 1)

        assert [one.task.url for one in batch.leases] == ["https://a.test/9"]
        counts = await lab.jobs.counts(job.id)
        assert (counts.dead, counts.leased, counts.queued) == (9, 1, 0)


async def test_the_newest_dead_are_found_without_reading_all(valkey):
    async with redis_lab(valkey.address()) as lab:
        # given two thousand dead letters, the last of them another kind
        job = await lab.job(max_urls_per_pattern=None)
        await lab.frontier.add(job.id, links(2_000))
        while leases := (await lab.frontier.lease(job.id, "w", 100)).leases:
            lab.clock.advance(1)
            await asyncio.gather(*(lab.frontier.bury(one, "http-404", "gone") for one in leases))
        lab.clock.advance(1)
        await lab.frontier.add(job.id, [candidate("https://b.test/")])
        [last] = (await lab.frontier.lease(job.id, "w", 1)).leases
        await lab.frontier.bury(last, "parse", "no")

        # when a few are asked for
        call, calls = lab.jobs.server.call, []

        async def counting(*command):
            calls.append(command)
            return await call(*command)

        lab.jobs.server.call = counting
        newest = await lab.queue.dead(DeadFilter(), limit=3)
        gone = await lab.queue.dead(DeadFilter(reason="http"), limit=2)
        lab.jobs.server.call = call

        # then they are the newest, in the order of all, and most were left unread
        whole = await lab.queue.dead(DeadFilter(), limit=5_000)
        assert len(whole) == 2_001
        assert newest == whole[:3]
        assert newest[0].reason == "parse"
        assert gone == whole[1:3]
        assert sum(len(command) for command in calls if command[0] == "HMGET") < 1_100
        assert await lab.queue.dead(DeadFilter(), limit=0) == []
        assert [one.site for one in await lab.queue.dead(DeadFilter(site="b.test"), limit=9)] == ["b.test"]


# -- addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["/", "?", "#", "[", "@x/"])
def test_a_password_with_a_bare_sign_in_it_is_refused_and_no_part_of_it_shown(sign):
    for address in (f"redis://user:12{sign}34secret@host:6379/0", f"redis://:12{sign}34secret@host:6379/0"):
        with pytest.raises(Misconfigured, match="%2F") as caught:
            connection.place_of(address)
        assert "12" not in str(caught.value)
        assert "34secret" not in str(caught.value)


def test_the_place_of_an_address_has_no_secrets():
    assert connection.place_of("redis://user:12%2F34@host:7000/0") == "host:7000"
    assert connection.place_of("redis://host") == "host:6379"
    assert connection.place_of("redis+unix:///run/some@where.sock") == "/run/some@where.sock"


# -- workers that only look on ---------------------------------------------------------------------------------------


async def test_looking_at_many_sites_again_and_again_costs_little(valkey):
    def sent() -> int:
        return int(valkey.say("INFO", "stats").partition("total_net_output_bytes:")[2].split()[0])

    async with redis_lab(valkey.address()) as lab:
        # given a hundred sites with long names, that a worker has looked at once
        job = await lab.job()
        sites = [f"a-site-with-a-long-name-{n}.example" for n in range(100)]
        await lab.frontier.add(job.id, [candidate(f"https://{site}/") for site in sites])
        known, asking = await lab.frontier.job(job.id), leasing.LeaseRequest("w", b"*")
        [first] = await lab.frontier.dispatcher.look(known, asking, 100, [])
        assert {name for _, name, _ in first.ready} == set(sites)

        # when it looks again, then their names are not sent again
        before, between = sent(), sent()
        [again] = await lab.frontier.dispatcher.look(known, asking, 100, [])
        assert sent() - between - (between - before) < 2_500 < sum(map(len, sites))
        assert again.ready == first.ready

        # and nothing at all when the job is paused
        await lab.control.pause_job(job.id, True)
        [paused] = await lab.frontier.dispatcher.look(known, asking, 100, [])
        assert paused.ready == ()


async def test_a_job_that_empties_the_names_of_sites_does_not_disturb_another_that_leases(valkey, monkeypatch):
    monkeypatch.setattr(leasing, "NAMES_CACHED", 10)
    async with redis_lab(valkey.address()) as lab:
        job = await lab.job()
        await lab.frontier.add(job.id, [candidate(f"https://{n}.test/") for n in range(14)])
        names_of = lab.frontier.dispatcher._names_of
        known = await names_of(0, [1, 2, 3])
        both = await asyncio.gather(names_of(0, [1, 2, 3, 4]), names_of(0, [5, 6, 7, 8, 9, 10, 11, 12]))
    assert [sorted(names) for names in both] == [[1, 2, 3, 4], [5, 6, 7, 8, 9, 10, 11, 12]]
    assert sorted(known) == [1, 2, 3]
