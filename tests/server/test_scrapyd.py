"""Scrapyd's API: what its clients send and read, who may ask, and what is refused."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gossamer.project.access.keys import add_key
from tests.patience import until
from tests.sites.running import Park, park

from .serving import Served, serving, settings_of

HERE = {"fetch__allow_hosts": ["site0.localhost"]}


@pytest.fixture(scope="module")
def site() -> Iterator[Park]:
    with park(pages=12) as opened:
        yield opened


def basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


async def ask(door: Served, path: str, form: dict[str, Any] | None = None, **params: str) -> dict[str, Any]:
    """Ask as Scrapyd's clients do: a form, and the key as the password."""
    answer = await door.http.request(
        "GET" if form is None else "POST", path, params=params, data=form, headers=basic("me", door.key)
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_spider_is_scheduled_listed_followed_and_over(tmp_path: Path, site: Park) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    async with serving(settings_of(folder, site.url(0), **HERE)) as door:
        assert (await ask(door, "/listprojects.json"))["projects"] == ["shop"]
        assert (await ask(door, "/listspiders.json", project="shop"))["spiders"] == ["things"]
        assert (await door.http.get(f"{door.http.base_url}//listspiders.json")).status_code == 401  # it is there
        assert (await ask(door, "/listversions.json", project="shop"))["versions"] == ["current"]
        form = {
            "project": "shop",
            "spider": "things",
            "setting": "CLOSESPIDER_PAGECOUNT=5",
            "jobid": "2026-11-18T10_00_00",
        }

        begun = await ask(door, "/schedule.json", form)

        assert (begun["status"], begun["jobid"]) == ("ok", "2026-11-18T10_00_00")
        again = await ask(door, "/schedule.json", {"project": "shop", "spider": "things"})
        assert again["jobid"] != begun["jobid"]  # each call is a job of its own
        ids = {begun["jobid"], again["jobid"]}

        async def finished() -> bool:
            jobs = (await ask(door, "/listjobs.json", project="shop"))["finished"]
            return {job["id"] for job in jobs} == ids

        await until(finished, "both jobs are over")
        listed = await ask(door, "/listjobs.json", project="shop")
        assert {job["spider"] for job in listed["finished"]} == {"things"}
        assert all(job["end_time"] >= job["start_time"] for job in listed["finished"])
        assert (await ask(door, "/status.json", job=begun["jobid"]))["currstate"] == "finished"
        report = await ask(door, "/daemonstatus.json")
        assert (report["status"], report["pending"], report["running"], report["finished"]) == ("ok", 0, 0, 2)


async def test_a_waiting_job_is_cancelled_and_a_second_cancel_finds_it_over(tmp_path: Path, site: Park) -> None:
    async with serving(settings_of(tmp_path, site.url(0), **HERE), worker=False) as door:
        begun = await ask(door, "/schedule.json", {"project": "default", "spider": "things"})
        form = {"project": "default", "job": begun["jobid"]}

        assert (await ask(door, "/cancel.json", form))["prevstate"] == "pending"
        assert (await ask(door, "/cancel.json", form))["prevstate"] is None


@pytest.mark.parametrize(
    ("path", "form", "words"),
    [
        ("/schedule.json", {"project": "default"}, "'spider' parameter is required"),
        ("/schedule.json", {"project": "other", "spider": "things"}, "project 'other' not found"),
        ("/schedule.json", {"project": "default", "spider": "../x.py"}, "spider '../x.py' not found"),
        (
            "/schedule.json",
            {"project": "default", "spider": "things", "setting": "ITEM_PIPELINES={}"},
            "ITEM_PIPELINES",
        ),
        ("/schedule.json", {"project": "default", "spider": "things", "setting": "DEPTH_LIMIT=deep"}, "not a number"),
        ("/schedule.json", {"project": "default", "spider": "things", "jobid": "a#b"}, "printable"),
        ("/cancel.json", {"project": "default", "job": "nothing"}, "job 'nothing' not found"),
    ],
)
async def test_what_cannot_be_done_is_an_error_in_scrapyds_shape(
    tmp_path: Path, site: Park, path: str, form: dict[str, str], words: str
) -> None:
    async with serving(settings_of(tmp_path, site.url(0), **HERE), worker=False) as door:
        found = await ask(door, path, form)
        assert found["status"] == "error"
        assert words in found["message"]
        assert not await door.project.state.jobs.running_jobs()


async def test_code_never_comes_over_http(tmp_path: Path, site: Park) -> None:
    async with serving(settings_of(tmp_path, site.url(0), **HERE), worker=False) as door:
        answer = await door.http.post(
            "/addversion.json",
            data={"project": "default", "version": "1"},
            files={"egg": ("x.egg", b"PK\x03\x04")},
            headers=basic(door.key, ""),
        )
        assert (answer.status_code, answer.json()["status"]) == (501, "error")
        assert "Code never comes over HTTP" in answer.json()["message"]


async def test_keys_scopes_and_origins_hold_here_too(tmp_path: Path, site: Park) -> None:
    async with serving(settings_of(tmp_path, site.url(0), **HERE), worker=False) as door:
        form = {"project": "default", "spider": "things"}
        reader = (await add_key(door.project, "reads", ["records"])).key
        answers = await asyncio.gather(
            door.http.get("/listjobs.json"),
            door.http.get("/listjobs.json", headers=basic("me", "wrong")),
            door.http.post("/schedule.json", data=form, headers=basic("me", reader)),
            door.http.post(
                "/schedule.json", data=form, headers=basic("me", door.key) | {"origin": "https://evil.example"}
            ),
            door.http.get("/api/v1/jobs", headers=basic("me", door.key)),  # elsewhere a browser might send it unasked
        )
        assert [answer.status_code for answer in answers] == [401, 401, 403, 403, 401]
        assert all(answer.json()["status"] == "error" for answer in answers[:4])
        assert not await door.project.state.jobs.running_jobs()


# What ScrapydWeb 1.6 looks for in Scrapyd's pages.
ROW = re.compile(
    r"<tr>\s*<td>(.*?)</td>\s*<td>(.*?)</td>\s*<td>(.*?)</td>\s*(?:<td>(.*?)</td>\s*)?(?:<td>(.*?)</td>\s*)?"
    r"(?:<td>(.*?)</td>\s*)?(?:<td>(.*?)</td>\s*)?(?:<td>(.*?)</td>\s*)?(?:<td>(.*?)</td>\s*)?[\w\W]*?</tr>"
)
ENTRY = re.compile(r'<tr\sclass="(?:odd|even)">\n\s+<td>(.*?)</td>\n\s+<td>(.*?)</td>\n\s+<td>(.*?)</td>\n')
MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


def rows(jobs: str) -> list[tuple[str, ...]]:
    return ROW.findall(re.sub(r"<thead>.*?</thead>", "", jobs, flags=re.S))


async def test_scrapyds_pages_show_jobs_logs_and_items_to_programs_that_read_them(tmp_path: Path, site: Park) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    async with serving(settings_of(folder, site.url(0), **HERE)) as door:

        async def is_over() -> bool:
            return bool((await ask(door, "/daemonstatus.json"))["finished"] == 1)

        async def page(path: str, status: int = 200, key: str = door.key) -> str:
            answer = await door.http.get(path, headers=basic("me", key) if key else {})
            assert answer.status_code == status, answer.text
            return answer.text

        form = {"project": "shop", "spider": "things", "setting": "CLOSESPIDER_PAGECOUNT=3", "jobid": "<b>1</b>"}
        await ask(door, "/schedule.json", form)
        await until(is_over)
        home, jobs = await page("/"), await page("/jobs")
        folders = [await page(path) for path in ("/logs/", "/logs/shop/", "/logs/shop/things/")]
        (link,) = re.findall(r"href='(/logs/[^']+)'", jobs)
        log = await page(link)
        lines = await page(link.replace("logs", "items").removesuffix("log") + "jl")
        hidden = await page("/jobs", key=await door.new_key("other", "jobs"))
        for path in ("/logs/no/", "/logs/shop/things/x.log"):
            await page(path, 404)
        await page("/jobs", 404, key="")
        assert "not signed in. Open /ui/sign-in" in await page("/", 401, key="")  # that of the dashboard

    assert "Available projects: <b>shop</b>" in home
    (row,) = rows(jobs)
    assert row[:3] == ("shop", "things", "&lt;b&gt;1&lt;/b&gt;")
    assert re.fullmatch(MOMENT, row[4])
    assert re.fullmatch(MOMENT, row[6])
    names = [re.findall(r'">(.+?)<', entry[0]) for text in folders for entry in ENTRY.findall(text)]
    assert names == [["shop/"], ["things/"], ["&lt;b&gt;1&lt;/b&gt;.log"]]
    for text, place in zip(folders, ("", "shop/", "shop/things/"), strict=True):
        assert f"Directory listing for /logs/{place}" in text
    stats = log[log.index("{") : log.rindex("}") + 1]
    assert "'downloader/response_count': 3" in stats
    assert f"'item_scraped_count': {len(lines.splitlines())}" in stats
    assert "'finish_reason': 'finished'" in stats
    assert rows(hidden) == []
