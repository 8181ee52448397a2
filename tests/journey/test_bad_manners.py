"""Sites that send us round in circles, into private networks or away for a million years; links that are none."""

from __future__ import annotations

from gossamer.model.events import Buried, Retried
from tests.journey.crawling import crawled, settings_for
from tests.journey.visiting import Curious, among_good_pages
from tests.sites.hostile import Call, head, hostile_site, huge_robots, whole

CAP = 0.1  # seconds: retry.rate_limited_cap of these crawls


async def test_redirects_that_go_in_circles_end(tmp_path):
    async with hostile_site() as site:
        links = [site.url(path) for path in ("/loop", "/counting-loop")]
        after = await among_good_pages(site, tmp_path, links, fetch__max_redirects=5)

        assert [after.fate(link) for link in links] == [("dead", "redirect-loop")] * 2
        assert len(site.seen("/counting-loop")) == 6
        assert "fetch.max_redirects" in after.letters[links[1]].message


async def test_a_long_way_round_over_many_pages_ends_too(tmp_path):
    async with hostile_site() as site:
        for n in range(30):
            site.show(f"/hop/{n}", "", f"Location: /hop/{n + 1}", status=302)
        after = await among_good_pages(site, tmp_path, [site.url("/hop/0")], fetch__max_redirects=5)

        assert after.fate(site.url("/hop/0")) == ("done", f"redirected to {site.url('/hop/1')}")
        assert after.fate(site.url("/hop/5")) == ("dead", "redirect-loop")
        assert site.seen("/hop/6") == []


async def test_pages_behind_a_cookie_are_all_had_when_many_meet_the_gate_at_once(tmp_path):
    async def behind_the_gate(call: Call) -> None:
        if "let-me-in" in call.seen.headers.get("cookie", ""):
            await whole(call, f"<title>{call.seen.path}</title>".encode())
        else:
            await call.send(head(302, f"Location: /gate?next={call.seen.path}", length=0))

    async def gate(call: Call) -> None:
        await call.send(head(302, f"Location: {call.query['next']}", "Set-Cookie: let-me-in=1", length=0))

    async with hostile_site() as site:
        site.shown["/gate"] = gate
        links = [site.url(f"/wall/{n}") for n in range(8)]
        for n in range(8):
            site.shown[f"/wall/{n}"] = behind_the_gate

        after = await among_good_pages(site, tmp_path, links)

        titles = {record.data["title"] for record in after.records}
        assert {f"/wall/{n}" for n in range(8)} <= titles
        assert after.report.counts.dead == 0


async def test_redirects_into_private_networks_and_files_are_refused(tmp_path):
    async with hostile_site() as site:
        private = ["http://10.0.0.1/", "http://169.254.169.254/latest/meta-data", "http://[::1]/", "http://2130706434/"]
        files = ["file:///etc/passwd", "javascript:alert(1)", "data:text/html,x", "ftp://a.test/"]
        links = [site.url(f"/redirect?to={to}") for to in private + files]

        after = await among_good_pages(site, tmp_path, links)

        for to in private:
            (found,) = [fate for fate in after.fates if fate[0].startswith(to.replace("2130706434", "127.0.0.2"))]
            assert found[1:] == ("dead", "private-address")
        for link in links[len(private) :]:
            assert after.fate(link) == ("dead", "bad-response")
            assert "which cannot be crawled" in after.letters[link].message


async def test_links_that_lead_nowhere_are_left_where_they_are(tmp_path):
    async with hostile_site() as site:
        nowhere = [
            "file:///etc/passwd",
            "javascript:alert(1)",
            "data:text/html,x",
            "mailto:a@b.test",
            "http://[",
            "",
            "#",
        ]
        after = await among_good_pages(site, tmp_path, nowhere)
        assert after.report.counts.done == len(after.fates) == len(site.log) - 1  # one was for robots.txt


async def test_line_breaks_and_spaces_in_a_link_cannot_add_a_header(tmp_path):
    async with hostile_site() as site:
        site.show("/split%20X-Evil:%201", "<title>Split</title>")
        link = "/sp&#13;&#10;lit X-Evil:&#13;&#10; 1"
        escaped = site.show("/a%0d%0aX-Evil:%201", "<title>Escaped</title>")

        after = await among_good_pages(site, tmp_path, [link, escaped])

        assert after.record(site.url("/split%20X-Evil:%201"))["title"] == "Split"
        assert after.record(escaped)["title"] == "Escaped"
        assert not any("x-evil" in seen.headers for seen in site.log)


async def test_line_breaks_in_a_redirect_cannot_add_a_header(tmp_path):
    async with hostile_site() as site:
        link = site.show("/jump", "", "Location: /landed%0d%0aX-Evil:%201", status=302)
        site.show("/landed%0d%0aX-Evil:%201", "<title>Landed</title>")
        after = await among_good_pages(site, tmp_path, [link])

        assert after.record(site.url("/landed%0d%0aX-Evil:%201"))["title"] == "Landed"
        assert not any("x-evil" in seen.headers for seen in site.log)


async def test_absurd_wishes_for_patience_are_clamped(tmp_path):
    async with hostile_site() as site:
        options = ["1e12", "-5", "garbage", "", "nan", "inf", "9" * 400, "Fri,%2031%20Dec%209999%2023:59:59%20GMT"]
        links = [site.url(f"/retry-after?status={status}&wish={w}") for status in (429, 503) for w in options]
        after = await among_good_pages(site, tmp_path, links)

        assert {after.fate(link)[1] for link in links} == {"http-429", "http-503"}
        assert all(after.letters[link].attempts == 2 for link in links)
        assert {heard.reason for heard in after.heard.of(Retried, Buried)} == {"http-429", "http-503"}
        delays = [retried.delay for retried in after.heard.of(Retried)]
        assert len(delays) == len(links)
        assert max(delays) <= CAP


async def test_a_robots_txt_without_end_is_obeyed_as_far_as_it_was_read(tmp_path):
    async with hostile_site() as site:
        site.robots = huge_robots
        after = await among_good_pages(site, tmp_path, [site.url("/secret/page")])

        assert after.fate(site.url("/secret/page")) == ("dropped", "robots")
        assert site.seen("/secret/page") == []
        assert site.sent < 20_000_000  # of 500 MB


async def test_a_robots_txt_that_is_a_web_page_forbids_nothing(tmp_path):
    async with hostile_site() as site:
        site.answer_robots(200, "<!doctype html><html><body>Not found, but 200.<p>Disallow: /</body></html>")
        await among_good_pages(site, tmp_path, [site.url("/plain")])


async def test_a_robots_txt_of_binary_rubbish_forbids_nothing(tmp_path):
    async with hostile_site() as site:
        site.answer_robots(200, bytes(range(256)) * 1000)
        await among_good_pages(site, tmp_path, [site.url("/plain")])


async def test_a_site_whose_robots_txt_fails_is_left_alone_and_others_are_not(tmp_path):
    async with hostile_site() as site, hostile_site() as failing:
        failing.answer_robots(503, "", "Retry-After: 1e12")
        after = await among_good_pages(site, tmp_path, [failing.url("/plain")])

        assert after.fate(failing.url("/plain")) == ("dead", "robots-unreachable")
        assert "robots.txt answers 503" in after.letters[failing.url("/plain")].message
        assert {seen.path for seen in failing.log} == {"/robots.txt"}


async def test_a_crawl_in_which_not_one_page_could_be_had_says_why(tmp_path):
    async with hostile_site() as site, hostile_site() as other:
        site.answer_robots(200, "User-agent: *\nDisallow: /secret")
        elsewhere = other.url("/").replace("127.0.0.1", "elsewhere.localhost")
        site.show("/moved", "", f"Location: {elsewhere}", status=301)
        tries = {
            "/status?code=410": "answered 410",
            "/secret": "robots.txt of the site forbids",
            "/moved": "another site",
            "/plain": "",
        }
        for path, words in tries.items():
            spider = Curious()
            spider.allowed_domains = None
            spider.start_urls = [site.url(path)]
            after = await crawled(spider, settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"]), fresh=True)
            assert words in after.report.failure
            assert bool(after.report.failure) == bool(words)
