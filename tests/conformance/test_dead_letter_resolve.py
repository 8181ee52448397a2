"""What every frontier promises about a dead letter that is settled after all, and about reading very many of them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from gossamer.errors import BackendUnavailable, Permanent
from gossamer.frontier.contract import Added, DeadFilter, LetterPlace
from gossamer.model.job import JobState
from gossamer.model.task import NO_ROOM, DropReason, UrlState
from tests.conformance.frontiers import Backends, adds_up, candidate

PAGE = "https://a.test/page"
MANY_SITES = [candidate(f"https://s{n}.test/", depth=1) for n in range(12)]


@pytest.fixture(params=Backends.NAMES)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def buried(lab, *urls, reason="parse", **terms):
    """A job whose only URLs are these, all of them dead; and their letters."""
    job = await lab.job(**terms)
    await lab.frontier.add(job.id, [candidate(url, priority=3) for url in urls])
    await lab.jobs.seal_seeds(job.id)
    leases = []
    while batch := (await lab.frontier.lease(job.id, "w", 100)).leases:
        leases += batch
    await asyncio.gather(*(lab.frontier.bury(lease, reason, "KeyError: price") for lease in leases))
    lab.clock.advance(1)
    return job, await lab.queue.dead(DeadFilter(job=job.id), limit=10_000)


async def story_of(lab, url):
    wanted = candidate(url)
    (story,) = await lab.queue.story(wanted.site, wanted.fingerprint)
    return story


async def counted(lab, job):
    """The counts, which must add up."""
    counts = await lab.jobs.counts(job.id)
    assert adds_up(counts)
    return counts


# -- one letter -----------------------------------------------------------------------------------------------------


async def test_a_resolved_letter_is_done_and_what_was_found_on_its_page_is_queued(lab):
    # given a page that could not be parsed
    job, [letter] = await buried(lab, PAGE)
    before = await story_of(lab, PAGE)
    assert (letter.fingerprint, letter.depth, letter.priority) == (candidate(PAGE).fingerprint, 0, 3)

    # when it is settled, with a link, a link that is out of scope, and three that are known to be known
    links = [candidate("https://a.test/1", depth=1), candidate("https://b.test/", dropped=DropReason.SCOPE)]
    added = await lab.queue.resolve(letter, links, duplicates=3, reason="parsed from the archive")

    # then it is no letter any more, and its story tells how that came
    assert added == Added(queued=1, dropped=1)
    assert await lab.queue.dead(DeadFilter()) == []
    counts = await counted(lab, job)
    assert (counts.dead, counts.done, counts.queued, counts.dropped, counts.discovered) == (0, 1, 1, 1, 6)
    story = await story_of(lab, PAGE)
    assert (story.state, story.reason, story.message) == (UrlState.DONE, "parsed from the archive", "")
    assert (story.attempts, story.deliveries) == (before.attempts, 0)
    assert story.changed_at == lab.clock.now()
    assert [what for _, what in story.incidents] == ["resolved from the dead letters (parse)"]
    link = await story_of(lab, "https://a.test/1")
    assert (link.state, link.found_on, link.depth) == (UrlState.QUEUED, PAGE, 1)
    assert [one.task.url for one in (await lab.frontier.lease(job.id, "w", 9)).leases] == ["https://a.test/1"]


async def test_links_that_are_known_are_counted_and_not_queued_again(lab):
    job, [one, other] = await buried(lab, PAGE, "https://a.test/other")
    links = [candidate("https://a.test/new"), candidate(one.url, force=True), candidate(other.url)]

    first = await lab.queue.resolve(one, links)
    second = await lab.queue.resolve(other, links[:1])

    assert first == Added(queued=1, duplicates=2)
    assert second == Added(duplicates=1)
    assert (await story_of(lab, one.url)).state is UrlState.DONE
    counts = await counted(lab, job)
    assert (counts.done, counts.queued, counts.dead, counts.discovered) == (2, 1, 0, 6)


async def test_a_link_that_the_dedup_window_lets_in_again_enters_but_not_the_page_itself(lab):
    job, [one, other] = await buried(lab, PAGE, "https://a.test/other", dedup_window=timedelta(hours=1))
    await lab.queue.resolve(other)
    lab.clock.advance(3601)

    added = await lab.queue.resolve(one, [candidate(one.url), candidate(other.url)])

    assert added == Added(queued=1, duplicates=2)
    counts = await counted(lab, job)
    assert (counts.done, counts.queued, counts.dead) == (1, 1, 0)
    assert (await story_of(lab, one.url)).state is UrlState.DONE


async def test_a_letter_that_is_resolved_twice_is_settled_once(lab):
    job, [letter] = await buried(lab, PAGE)
    await lab.queue.resolve(letter, [candidate("https://a.test/1")])
    before = await counted(lab, job)

    again = await lab.queue.resolve(letter, [candidate("https://a.test/2")], duplicates=5, reason="again")

    assert again is None
    assert await counted(lab, job) == before
    assert (await story_of(lab, PAGE)).reason == ""


async def test_of_several_who_resolve_a_letter_at_the_same_time_one_does(lab):
    job, [letter] = await buried(lab, PAGE)
    links = [candidate(f"https://a.test/{n}") for n in range(12)]

    answers = await asyncio.gather(*(lab.queue.resolve(letter, links, duplicates=1) for _ in range(4)))

    assert [answer for answer in answers if answer is not None] == [Added(queued=12)]
    counts = await counted(lab, job)
    assert (counts.dead, counts.done, counts.queued) == (0, 1, 12)
    assert (counts.discovered, counts.duplicates) == (14, 1)


@pytest.mark.parametrize("ended", [False, True])
async def test_links_that_no_single_shard_can_take_are_queued_once_whoever_resolves_their_page(lab, ended):
    job, [letter] = await buried(lab, PAGE)
    if ended:
        assert await lab.jobs.close_job(job.id, "done")

    answers = await asyncio.gather(*(lab.queue.resolve(letter, MANY_SITES) for _ in range(4)))

    assert sorted(answer is None for answer in answers) == [False, True, True, True]
    counts = await counted(lab, job)
    assert (counts.dead, counts.done, counts.queued) == (0, 1, 12)
    assert (await lab.jobs.job(job.id)).state is JobState.RUNNING
    assert len((await lab.frontier.lease(job.id, "w", 20)).leases) == 12


@pytest.mark.parametrize("fate", ["replay", "purge"])
async def test_a_letter_that_somebody_else_took_is_not_resolved(lab, fate):
    job, [letter] = await buried(lab, PAGE)
    await getattr(lab.queue, fate)(DeadFilter())
    before = await counted(lab, job)

    assert await lab.queue.resolve(letter, MANY_SITES) is None

    assert await counted(lab, job) == before


async def test_who_died_again_is_another_letter(lab):
    # given a letter that was replayed, and whose page is gone now
    job, [old] = await buried(lab, PAGE)
    await lab.queue.replay(DeadFilter())
    [lease] = (await lab.frontier.lease(job.id, "w", 1)).leases
    await lab.frontier.bury(lease, "http-404", "gone")
    before = await counted(lab, job)

    # when the letter of the first death is resolved, then nothing happens
    assert await lab.queue.resolve(old, [candidate("https://a.test/1")]) is None
    assert await counted(lab, job) == before

    # and when that of the second is, it is
    [new] = await lab.queue.dead(DeadFilter())
    assert await lab.queue.resolve(new) == Added()


async def test_a_letter_of_another_job_with_the_same_url_stays(lab):
    (one, [first]), (two, [second]) = await buried(lab, PAGE), await buried(lab, PAGE, name="two")

    assert await lab.queue.resolve(first) == Added()

    assert await lab.queue.dead(DeadFilter()) == [second]
    assert ((await counted(lab, one)).dead, (await counted(lab, two)).dead) == (0, 1)


async def test_a_letter_of_an_unknown_job_is_refused(lab):
    _, [letter] = await buried(lab, PAGE)

    with pytest.raises(Permanent, match="gossamer status"):
        await lab.queue.resolve(msgspec.structs.replace(letter, job="nonsense-1"))


# -- the job --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("links", [[candidate("https://a.test/1")], MANY_SITES], ids=["here", "elsewhere"])
async def test_a_finished_job_that_gets_work_runs_again(lab, links):
    job, [letter] = await buried(lab, PAGE)
    assert await lab.jobs.close_job(job.id, "done")

    added = await lab.queue.resolve(letter, links)

    assert added == Added(queued=len(links))
    now = await lab.jobs.job(job.id)
    assert (now.state, now.ending, now.finished_at) == (JobState.RUNNING, "", None)
    assert [one.id for one in await lab.jobs.running_jobs()] == [job.id]
    leases = (await lab.frontier.lease(job.id, "w", 20)).leases
    assert sorted(lease.task.url for lease in leases) == sorted(link.url for link in links)
    await counted(lab, job)


async def test_a_finished_job_that_gets_no_work_stays_finished(lab):
    job, [one, two] = await buried(lab, PAGE, "https://a.test/other")
    await lab.jobs.close_job(job.id, "done")
    ended = await lab.jobs.job(job.id)
    lab.clock.advance(60)

    assert await lab.queue.resolve(one, [candidate(two.url)]) == Added(duplicates=1)
    assert await lab.queue.resolve(two) == Added()

    assert await lab.jobs.job(job.id) == ended
    assert (await counted(lab, job)).done == 2


async def test_a_job_whose_limit_is_used_up_is_not_begun_again(lab):
    # given a job that was to visit one page, and it is dead
    job, [letter] = await buried(lab, PAGE, limit=1)
    await lab.jobs.close_job(job.id, "done")

    # when that page is resolved, with a link
    assert await lab.queue.resolve(letter, [candidate("https://a.test/1")]) == Added(queued=1)

    # then the link waits, and the job rests
    assert (await lab.jobs.job(job.id)).ending == "done"
    assert (await counted(lab, job)).queued == 1
    assert (await lab.frontier.lease(job.id, "w", 9)).leases == ()


async def test_a_job_that_ended_at_its_limit_stays_ended(lab):
    job, [letter] = await buried(lab, PAGE)
    await lab.frontier.add(job.id, [candidate("https://a.test/left")])
    await lab.jobs.close_job(job.id, "limit")

    assert await lab.queue.resolve(letter, [candidate("https://a.test/1")]) == Added(queued=1)

    assert (await lab.jobs.job(job.id)).ending == "limit"


async def test_a_resolved_page_uses_up_no_more_of_the_limit(lab):
    job, [one, _] = await buried(lab, PAGE, "https://a.test/other", limit=3)

    await lab.queue.resolve(one, [candidate("https://a.test/1"), candidate("https://a.test/2")])

    assert len((await lab.frontier.lease(job.id, "w", 9)).leases) == 1


# -- the rules of admission -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ended", [False, True])
async def test_what_finds_no_room_in_the_queue_waits_for_it(lab, ended):
    job, [letter] = await buried(lab, PAGE, max_queued=2)
    if ended:
        await lab.jobs.close_job(job.id, "done")

    added = await lab.queue.resolve(letter, [candidate(f"https://a.test/{n}") for n in range(5)])

    assert added == Added(queued=5)
    assert {reason async for _, _, reason in lab.queue.urls(job.id, UrlState.WAITING)} == {NO_ROOM}
    counts = await counted(lab, job)
    assert (counts.queued, counts.postponed, counts.dropped) == (2, 3, 0)


async def test_trap_budgets_hold(lab):
    job, [letter] = await buried(lab, PAGE, max_urls_per_site=4, max_urls_per_pattern=2)
    days = [candidate(f"https://a.test/day/{n}") for n in range(5)]
    others = [candidate(f"https://a.test/{'x' * n}") for n in range(1, 4)]

    added = await lab.queue.resolve(letter, [*days, *others])

    assert added == Added(queued=3, dropped=5)  # two days, and with one more the site has had its four
    await counted(lab, job)


async def test_a_page_with_very_many_links_is_resolved(lab):
    job, [letter] = await buried(lab, PAGE, max_urls_per_pattern=None)
    links = [candidate(f"https://a.test/{n}", depth=1) for n in range(700)]

    assert await lab.queue.resolve(letter, links) == Added(queued=700)

    counts = await counted(lab, job)
    assert (counts.done, counts.queued, counts.discovered) == (1, 700, 701)
    assert (await story_of(lab, "https://a.test/0")).found_on == PAGE


async def test_where_a_filter_remembers_what_is_done_it_remembers_a_resolved_page(lab):
    job, [letter] = await buried(lab, PAGE, dedup="bloom", dedup_expected=1_000)

    assert await lab.queue.resolve(letter, [candidate("https://a.test/1")]) == Added(queued=1)

    assert await lab.queue.dead(DeadFilter()) == []
    assert await lab.frontier.add(job.id, [candidate(PAGE)]) == Added(duplicates=1)
    assert (await counted(lab, job)).done == 1


# -- crashes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["add", "change_job", "resolve"])
async def test_a_server_that_fails_on_the_way_loses_neither_the_letter_nor_its_links(tmp_path, backends, broken):
    async with backends.open("shards", tmp_path) as lab:
        # given a finished job with a letter
        job, [letter] = await buried(lab, PAGE)
        await lab.jobs.close_job(job.id, "done")

        # when the server is lost after each step once
        run = lab.jobs.server.run
        failed = []

        async def failing(script, *rest):
            answer = await run(script, *rest)
            if script == broken and not failed:
                failed.append(script)
                raise BackendUnavailable("gone")
            return answer

        lab.jobs.server.run = failing
        with pytest.raises(BackendUnavailable):
            await lab.queue.resolve(letter, MANY_SITES)
        again = await lab.queue.resolve(letter, MANY_SITES)
        lab.jobs.server.run = run

        # then the second time it is settled, unless it was already; every link is queued, once, and the job runs
        assert (again is None) == (broken == "resolve")
        assert (await lab.jobs.job(job.id)).state is JobState.RUNNING
        counts = await counted(lab, job)
        assert (counts.dead, counts.done, counts.queued) == (0, 1, 12)
        keys = lab.jobs.keys
        assert await lab.jobs.server.call("EXISTS", keys.in_shard(keys.shard_of(letter.site), "1:dead")) == 0


async def test_a_page_that_dies_again_while_its_letter_is_resolved_stays_dead(tmp_path, backends):
    async with backends.open("valkey", tmp_path) as lab:
        job, [letter] = await buried(lab, PAGE)

        # when somebody replays it just before the last step, and it dies in the same moment
        run = lab.jobs.server.run

        async def after_another_death(script, *rest):
            if script == "resolve":
                await lab.queue.replay(DeadFilter())
                [lease] = (await lab.frontier.lease(job.id, "w", 1)).leases
                await lab.frontier.bury(lease, "http-404", "gone")
            return await run(script, *rest)

        lab.jobs.server.run = after_another_death
        answer = await lab.queue.resolve(letter, [candidate("https://a.test/1")])
        lab.jobs.server.run = run

        # then it is that death that counts
        assert answer is None
        assert [one.reason for one in await lab.queue.dead(DeadFilter())] == ["http-404"]
        assert (await counted(lab, job)).queued == 0


# -- very many letters ----------------------------------------------------------------------------------------------


async def test_all_letters_are_streamed_once_while_they_leave_and_others_come(lab):
    # given more letters than are read at once, some of them dead in the same moment, in two jobs
    job, _ = await buried(lab, *(f"https://s{n % 7}.test/{n}" for n in range(1, 621)), max_urls_per_pattern=None)
    await lab.frontier.add(job.id, [candidate(f"https://late.test/{'x' * n}") for n in range(30)])
    for lease in (await lab.frontier.lease(job.id, "w", 30)).leases:
        lab.clock.advance(0.1)
        await lab.frontier.bury(lease, "http-404", "gone")
    _, [other] = await buried(lab, PAGE, name="two")
    whole = await lab.queue.dead(DeadFilter(), limit=10_000)
    assert len(whole) == 651

    # when they are listed in pages, then these are the same letters in the same order, to the end
    paged, place = [], None
    while page := await lab.queue.dead(DeadFilter(), limit=90, before=place):
        paged += page
        place = LetterPlace(page[-1].died_at, page[-1].id, page[-1].job)
    assert paged == whole

    # when every second one is resolved on the way, and more die
    seen = []
    async for letter in lab.queue.letters(DeadFilter()):
        seen.append(letter)
        if len(seen) % 2:
            assert await lab.queue.resolve(letter) == Added()
        if len(seen) == 100:
            await lab.frontier.add(job.id, [candidate("https://s1.test/after")])
            lab.clock.advance(1)
            [lease] = (await lab.frontier.lease(job.id, "w", 1)).leases
            await lab.frontier.bury(lease, "parse", "too late")

    # then all that were there came, once, and as they were
    assert {letter.url for letter in seen} - {one.url for one in whole} <= {"https://s1.test/after"}
    assert len({(letter.job, letter.url) for letter in seen}) == len(seen)
    assert all(one in seen for one in whole)
    assert seen[0] == other


async def test_a_stream_of_letters_is_filtered_like_a_list(lab):
    job, _ = await buried(lab, PAGE, "https://a.test/2", "https://b.test/3")
    await buried(lab, "https://c.test/4", name="two", reason="http-500")
    [wanted] = await lab.queue.dead(DeadFilter(url="https://b.test/3"))

    for which, many in (
        (DeadFilter(), 4), (DeadFilter(job=job.id), 3), (DeadFilter(site="a.test"), 2), (DeadFilter(reason="http"), 1),
        (DeadFilter(job=job.id, id=wanted.id), 1), (DeadFilter(site="nowhere.test"), 0), (DeadFilter(job="none"), 0),
        (DeadFilter(fingerprint=wanted.fingerprint), 1), (DeadFilter(site="a.test", fingerprint=wanted.fingerprint), 0),
        (DeadFilter(fingerprint=wanted.fingerprint, reason="http"), 0), (DeadFilter(fingerprint=b"x" * 16), 0),
    ):  # fmt: skip
        streamed = [letter async for letter in lab.queue.letters(which)]
        assert len(streamed) == many
        listed = await lab.queue.dead(which)
        assert sorted(streamed, key=lambda one: one.url) == sorted(listed, key=lambda one: one.url)


async def test_one_letter_is_replayed_by_what_identifies_its_page(lab):
    job, [one, other] = await buried(lab, PAGE, "https://a.test/2")

    assert await lab.queue.replay(DeadFilter(job=job.id, site=one.site, fingerprint=one.fingerprint)) == 1

    assert await lab.queue.dead(DeadFilter()) == [other]
    assert [lease.task.url for lease in (await lab.frontier.lease(job.id, "w", 9)).leases] == [one.url]


async def test_letters_of_a_job_with_a_limit_are_replayed_before_its_other_pages(lab):
    job, [letter] = await buried(lab, PAGE, limit=1)
    others = [candidate(url, priority=9) for url in ("https://a.test/other", "https://a.test/third")]
    await lab.frontier.add(job.id, others)
    await lab.jobs.close_job(job.id, "limit")

    assert await lab.queue.replay(DeadFilter(job=job.id)) == 1

    assert [lease.task.url for lease in (await lab.frontier.lease(job.id, "w", 9)).leases] == [letter.url]


async def test_letters_are_found_counted_replayed_and_purged_by_a_text_in_their_message(lab):
    job = await lab.job()
    said = {"a": "KeyError: 'price' (100 % ärgerlich)", "b": "KeyError: 'title'", "c": "KeyError: 'price'\n\nTraceback"}
    await lab.frontier.add(job.id, [candidate(f"http://shop.example/{name}") for name in said])
    await lab.jobs.seal_seeds(job.id)
    while leases := (await lab.frontier.lease(job.id, "w", 10)).leases:
        for lease in leases:
            await lab.frontier.bury(lease, "parse", said[lease.task.url[-1]])

    async def found(text: str) -> set[str]:
        which = DeadFilter(job=job.id, message=text)
        letters = await lab.queue.dead(which)
        assert sum((await lab.queue.dead_reasons(which)).values()) == len(letters)
        assert {one.id async for one in lab.queue.letters(which)} == {one.id for one in letters}
        return {letter.url[-1] for letter in letters}

    assert await found("'price'") == {"a", "c"}
    assert await found("100 % ärger") == {"a"}
    assert await found("%") == {"a"}
    assert await found("Traceback") == {"c"}
    assert await found("keyerror") == set()
    assert await lab.queue.purge(DeadFilter(message="'title'")) == 1
    assert await lab.queue.replay(DeadFilter(job=job.id, message="Traceback")) == 1
    assert await found("KeyError") == {"a"}
