"""`gossamer sessions`: what is shown of a session, and what never is."""

from __future__ import annotations

import pytest

from gossamer.fetch.sessions import begin_login, end_login, fail_login
from gossamer.model.session import Cookie
from gossamer.project.open import Project
from tests.sites.club import PASSWORD, club
from tests.unit.commandline import ProjectFolder
from tests.unit.commandline import project as project
from tests.unit.crawled import SHOP, crawl_half

SECRET = "v4lue-of-a-cookie"
SPIDER = """
from gossamer import Spider

class Members(Spider):
    start_urls = ["{url}/page/0"]
    session = "member"

    async def login(self, session):
        page = await session.get("{url}/login")
        answer = await session.submit(page.form("#login"), user="ada", password=self.secret("CLUB"))
        if answer.css(".error"):
            raise ValueError("the club does not know us")
"""


async def two_sessions(system: Project) -> None:
    cookie = Cookie("sid", SECRET, "club.example", "/", host_only=True, secure=True, expires=None, http_only=True)
    changes = {cookie.key: cookie}
    for name in ("members/one", "members/two"):
        taken = await system.state.sessions.change(name, begin_login("w", "h", 60, lambda worker: False))
        assert taken.lock is not None
        over = end_login(taken.lock.token, changes, {"X-Token": SECRET}, ["club.example"])
        await system.state.sessions.change(
            name, over if name == "members/one" else fail_login(taken.lock.token, "no such user")
        )


@pytest.fixture
def crawled(project: ProjectFolder) -> ProjectFolder:
    project.fill(crawl_half)
    project.fill(two_sessions)
    return project


def test_sessions_are_listed_and_shown_without_their_secrets(crawled):
    listed = crawled.run("sessions", "list", "--json").json
    assert [(one["name"], one["logged_in"], one["failures"]) for one in listed] == [
        ("members/one", True, 0),
        ("members/two", False, 1),
    ]
    assert crawled.run("sessions").lines[1].split()[:3] == ["members/one", "logged", "in"]
    shown = crawled.run("sessions", "show", "one")
    assert "sid" in shown.out
    assert "HttpOnly" in shown.out
    detail = crawled.run("sessions", "show", "members/one", "--json")
    assert (detail.json["cookie_list"][0]["value"], detail.json["headers"]) == ("***", {"X-Token": "***"})
    for said in (shown, detail, crawled.run("sessions", "list"), crawled.run("status"), crawled.run("why", SHOP)):
        assert SECRET not in said.out + said.err


def test_a_login_that_fails_is_told_by_status_and_doctor(crawled):
    assert "members/two cannot log in: no such user" in crawled.run("status").err
    assert "members/two cannot log in (1 failure in a row): no such user" in crawled.run("doctor").out


def test_sessions_are_cleared_one_by_one_or_all(crawled):
    assert crawled.run("sessions", "clear").code == 2
    assert crawled.run("sessions", "clear", "nobody").code != 0
    assert crawled.run("sessions", "clear", "members/one").out == "1 session cleared.\n"
    assert crawled.run("sessions", "clear", "--all").out == "1 session cleared.\n"
    assert crawled.run("sessions", "list").out.startswith("There is no session.")
    said = crawled.run("sessions", "show", "members/one")
    assert (said.code, "is not a session; there is none" in said.err) == (1, True)


def test_a_person_logs_a_spider_in(project, monkeypatch):
    with club() as site:
        project.write("spiders/members.py", SPIDER.format(url=site.url("")))
        monkeypatch.setenv("GOSSAMER_SECRET_CLUB", "wrong")
        said = project.run("sessions", "login", "members")
        assert (said.code, "the club does not know us" in said.err) == (1, True)

        monkeypatch.setenv("GOSSAMER_SECRET_CLUB", PASSWORD)
        assert project.run("sessions", "login", "members").out == "members/member is logged in.\n"
        assert (site.logins, project.run("sessions", "list", "--json").json[0]["logins"]) == (1, 1)
        assert project.run("sessions", "login", "nobody").code == 1
