"""Who can write to the state (Redis, Valkey), but to no file of the workers: can they run code, or read files, there?

A site can put files into the project's folder, because `export --files` writes what sites sent. So a path in the state
is not enough to load a file, wherever it is: only the project's spiders folder and the settings declare code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from gossamer import Page, Request, Spider
from gossamer.errors import Misconfigured
from gossamer.model.job import JobState, JobTerms
from gossamer.model.payload import Body
from gossamer.model.route import FetchOptions
from gossamer.model.secret_text import SecretRef
from gossamer.model.task import Candidate
from gossamer.model.url import fingerprint, site_of
from gossamer.project.open import Project, open_project
from gossamer.project.records.export import export_records
from gossamer.project.records.records import RecordFilter
from gossamer.project.reparse.archive_job import REPARSE, ReparseTerms
from gossamer.project.schedules.changes import ADDED, new_schedule, run_schedule
from gossamer.schedule.authority import sealed_schedule
from gossamer.settings import ScheduleTable, Settings, load
from tests.journey.crawling import crawled, look
from tests.journey.test_files import for_files
from tests.journey.test_foreign_state import KEY, SPIDER, plant, serve, settings_in, source
from tests.services.valkey import ValkeyServer
from tests.sites.downloads import Content, download_site
from tests.sites.hostile import Call, hostile_site, whole

RECIPE = 'start = ["http://127.0.0.1/"]\n\n[pages.parse]\nfields = { title = "h1::text" }\n'


def plant_file(folder: Path, name: str, text: str = SPIDER) -> Path:
    """What `gossamer export --files pictures` did with a file that a site called x.py."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


async def state_of(project: Project, job: str) -> JobState:
    found = await project.state.jobs.job(job)
    assert found is not None
    return found.state


REFS = (
    "pictures/x.py",
    "pictures/x.py:Things",
    "./spiders/../pictures/x.py",
    "spiders/../pictures/x.py",
    "{root}/pictures/x.py",
    "spiders/deep/x.py",
    "x.py",
)


@pytest.mark.parametrize("key", ["", KEY])
@pytest.mark.parametrize("ref", REFS)
async def test_a_job_in_the_state_loads_no_file_that_nothing_declares(
    tmp_path: Path, valkey: ValkeyServer, ref: str, key: str
) -> None:
    settings = settings_in(tmp_path, valkey, **({"fleet.key": key} if key else {}))
    planted = [plant_file(tmp_path, name) for name in ("pictures/x.py", "spiders/deep/x.py", "x.py")]
    async with open_project(settings) as project:
        job = await plant(project, spider=ref.format(root=tmp_path))
        troubles = await serve(project)
        assert not any(one.with_name("ran").exists() for one in planted)
        assert any("spider_files" in words for words in troubles), troubles  # what to do
        assert await state_of(project, job) is JobState.RUNNING  # for a worker that declares the file


async def test_a_link_in_the_pictures_leads_to_no_code_either(tmp_path: Path, valkey: ValkeyServer) -> None:
    settings = settings_in(tmp_path, valkey)
    planted = plant_file(tmp_path, "pictures/x.py")
    (tmp_path / "pictures" / "spiders").symlink_to(tmp_path / "pictures")
    async with open_project(settings) as project:
        await plant(project, spider="pictures/spiders/x.py")
        await serve(project)
        assert not planted.with_name("ran").exists()


@pytest.mark.parametrize("name", ["pictures/x.toml", "pictures/x.yaml"])
async def test_a_recipe_that_nothing_declares_is_not_read(tmp_path: Path, valkey: ValkeyServer, name: str) -> None:
    plant_file(tmp_path, name, RECIPE)  # its headers could send the project's secrets to a site
    async with open_project(settings_in(tmp_path, valkey)) as project:
        await plant(project, spider=name)
        troubles = await serve(project)
        assert any("spider_files" in words for words in troubles), troubles


async def test_a_reparse_in_the_state_loads_no_file_that_nothing_declares(tmp_path: Path, valkey: ValkeyServer) -> None:
    planted = plant_file(tmp_path, "pictures/x.py")
    terms = ReparseTerms(crawled_as="things", spider="pictures/x.py", names=("things",))
    async with open_project(settings_in(tmp_path, valkey)) as project:
        await plant(project, schedule="", spider=REPARSE, arguments=msgspec.json.encode(terms).decode())
        troubles = await serve(project)
        assert not planted.with_name("ran").exists()
        assert any("spider_files" in words for words in troubles), troubles


async def test_a_schedule_in_the_state_loads_no_file_that_nothing_declares(
    tmp_path: Path, valkey: ValkeyServer
) -> None:
    planted = plant_file(tmp_path, "pictures/x.py")
    settings = settings_in(tmp_path, valkey)
    honest = new_schedule(settings, "mine", ScheduleTable(spider="things", every="1d")).schedule
    (tmp_path / "spiders" / "ran").unlink(missing_ok=True)
    async with open_project(settings) as project:
        forged = sealed_schedule(settings, msgspec.structs.replace(honest, spider="pictures/x.py"))
        await project.state.schedules.put(forged, origin=ADDED)
        with pytest.raises(Misconfigured, match="spider_files"):
            await run_schedule(project, "mine")
        assert not planted.with_name("ran").exists()


def by_setting(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, spider_files=("more/x.py",))


def by_schedule(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, schedules={"own": ScheduleTable(spider="more/x.py", every="1d")})


@pytest.mark.parametrize("declare", [by_setting, by_schedule])
async def test_a_file_that_the_own_settings_declare_is_loaded(
    tmp_path: Path, valkey: ValkeyServer, declare: Callable[[Settings], Settings]
) -> None:
    planted = plant_file(tmp_path, "more/x.py")
    async with open_project(declare(settings_in(tmp_path, valkey))) as project:
        await plant(project, spider="more/x.py", source=source(urls=["http://127.0.0.1:1/"]))
        await serve(project)
        assert planted.with_name("ran").exists()


async def test_a_spider_in_the_spiders_folder_is_loaded_by_its_path(tmp_path: Path, valkey: ValkeyServer) -> None:
    async with open_project(settings_in(tmp_path, valkey)) as project:
        await plant(project, spider="spiders/things.py", source=source(urls=["http://127.0.0.1:1/"]))
        await serve(project)
        assert (tmp_path / "spiders" / "ran").exists()


# -- file sources ----------------------------------------------------------------------------------------------------

SECRET = "hunter2-in-a-file"
FILES: dict[str, str] = {
    "gossamer.toml": "",
    "./spiders/../gossamer.toml": "",
    ".env": "",
    ".git/config.txt": "",
    "private/API_KEY": 'secrets = "private"',
    "private/api.txt": 'secrets = "private"',
    "gossamer-data/records.db": "",
    "gossamer-data/records.db-wal": "",
    "gossamer-data/spool/x.txt": "",
    "gossamer-data/archive/x.txt": "",
    "gates.txt": '[proxies.gates]\nfile = "gates.txt"',
    "spiders/things.py": "",
    "id_rsa": "",
    "server.pem": "",
}


@pytest.mark.parametrize("form", ["lines", "csv", "jsonl"])
@pytest.mark.parametrize("name", FILES)
async def test_a_file_source_in_the_state_reads_no_settings_secrets_or_databases(
    tmp_path: Path, valkey: ValkeyServer, name: str, form: str
) -> None:
    settings = settings_in(tmp_path, valkey, f"# {SECRET}\n{FILES[name]}\n")
    async with open_project(settings) as project:
        if not (tmp_path / name).exists():
            plant_file(tmp_path, name, f"{SECRET}\n{SECRET}\n")
        job = await plant(project, source=source(file=name, format=form))
        troubles = await serve(project)
        assert not any(SECRET in words for words in troubles), troubles
        assert any("Its source is" in words for words in troubles), troubles
        assert not (await project.state.jobs.counts(job)).discovered
        assert await state_of(project, job) is JobState.RUNNING


@pytest.mark.parametrize("name", ["gossamer.toml", "gossamer-data/state.db", "private/api.txt"])
async def test_nor_does_one_in_a_state_of_our_own(tmp_path: Path, name: str) -> None:
    (tmp_path / "spiders").mkdir()
    plant_file(tmp_path, "spiders/things.py")
    plant_file(tmp_path, "private/api.txt", SECRET)
    plant_file(tmp_path, "gossamer.toml", f'secrets = "private"\n# {SECRET}\n')
    async with open_project(load(start=tmp_path, environ={}, flags={})) as project:
        await plant(project, source=source(file=name))
        troubles = await serve(project)
        assert any("Its source is" in words for words in troubles), troubles
        assert not any(SECRET in words for words in troubles), troubles


async def test_a_file_source_shows_no_line_that_is_not_a_url(tmp_path: Path, valkey: ValkeyServer) -> None:
    plant_file(tmp_path, "urls.txt", f"{SECRET}\nmailto:{SECRET}\nhttp://[{SECRET}\n")
    plant_file(tmp_path, "urls.csv", f"user,{SECRET}\na,b\n")
    async with open_project(settings_in(tmp_path, valkey)) as project:
        for name, form in (("urls.txt", "lines"), ("urls.csv", "csv"), ("urls.txt", "jsonl")):
            await plant(project, source=source(file=name, format=form))
            troubles = await serve(project)
            assert any("line" in words for words in troubles), troubles
            assert not any(SECRET in words for words in troubles), troubles
            for job in await project.state.jobs.jobs():
                assert SECRET not in job.ending


async def test_a_list_of_the_project_is_still_read(tmp_path: Path, valkey: ValkeyServer) -> None:
    plant_file(tmp_path, "lists/urls.txt", "http://127.0.0.1:1/a\nhttp://127.0.0.1:1/b\n")
    async with open_project(settings_in(tmp_path, valkey)) as project:
        job = await plant(project, source=source(file="lists/urls.txt"))
        await serve(project)
        assert (await project.state.jobs.counts(job)).discovered == 2


# -- what sites put into the folder ----------------------------------------------------------------------------------

SENT = (
    "x.py",
    "x.PY",
    "x.pyc",
    "x.so",
    "x.sh",
    "x.exe",
    "x.js",
    "x.html",
    "x.svg",
    "x.toml",
    "x.py.",
    "a.txt.py",
    "x.pth",
)


@pytest.mark.parametrize("keep", [False, True])
async def test_an_export_writes_no_file_that_something_runs_unless_told_to(tmp_path: Path, keep: bool) -> None:
    async with download_site() as site:
        for name in (*SENT, "fine.png"):
            site.shown[f"/{name}"] = Content(body=name.encode(), type="application/octet-stream", etag="")
        url = site.show("/", "".join(f'<img src="/{name}">' for name in (*SENT, "fine.png")))
        read = for_files(tmp_path)
        await crawled(Pictures(url), read)
    folder = tmp_path / "pictures"

    async def question(project: Project) -> None:
        output = str(tmp_path / "all.jsonl")
        await export_records(project, RecordFilter(), output, files=folder, keep_endings=keep)

    await look(read, question)
    endings = {path.suffix.lower() for path in folder.iterdir()}
    assert endings == (
        {".png", ".py", ".pyc", ".so", ".sh", ".exe", ".js", ".html", ".svg", ".toml", ".pth"}
        if keep
        else {".png", ".bin"}
    )
    assert len(list(folder.iterdir())) == len(SENT) + 1


class Pictures(Spider):
    def __init__(self, url: str) -> None:
        self.start_urls = [url]

    def parse(self, page: Page) -> Iterator[Request]:
        yield from (page.download(image) for image in page.css("img"))


def test_terms_that_decide_what_runs_are_under_the_seal() -> None:
    from gossamer.schedule import authority

    unsealed = set(JobTerms.__struct_fields__) - set(authority._SEALED) - {"arguments"}
    # A new term must be judged: may somebody who can write the state choose it freely? These start no program.
    assert unsealed == UNSEALED


UNSEALED = {
    "max_attempts", "max_deliveries", "max_queued", "max_urls_per_site", "max_urls_per_pattern", "dedup_window",
    "dedup", "dedup_expected", "dedup_error", "dedup_check", "limit", "depth", "seal", "expected", "coverage",
    "politeness", "replayed", "stopped", "first_ended",
}  # fmt: skip


# -- secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["{root}/private.txt", "../private.txt", "../gossamer.toml", "CLUB/../../private.txt"])
@pytest.mark.parametrize("place", ["headers", "cookies", "auth", "body"])
async def test_a_secret_that_a_task_names_is_no_path(
    tmp_path: Path, valkey: ValkeyServer, name: str, place: str
) -> None:
    """Tasks name the secrets of requests. A path among these names would send any file of the worker to any site."""
    settings = settings_in(tmp_path, valkey, f'secrets = "vault"\n# {SECRET}\n', **{"fetch.allow_private": True})
    plant_file(tmp_path, "vault/CLUB/x", "")
    plant_file(tmp_path, "private.txt", SECRET)
    ref = SecretRef(name.format(root=tmp_path))
    pair = (("x-mark", (ref,)),)
    forged = {
        "headers": FetchOptions(headers=pair),
        "cookies": FetchOptions(cookies=pair),
        "auth": FetchOptions(auth=("me", (ref,))),
        "body": FetchOptions(method="POST", body=Body(parts=(b"x", ref))),
    }[place]

    async def fine(call: Call) -> None:
        await whole(call, b"<p>Fine.</p>")

    async with hostile_site() as site, open_project(settings) as project:
        site.shown["/fine"] = fine
        job = await plant(project, source=source(urls=[site.url("/fine")]))
        url = site.url("/forged")
        task = Candidate(
            url=url, fingerprint=fingerprint(url), site=site_of(url), how=msgspec.json.encode(forged).decode()
        )
        await project.state.frontier.add(job, [task])
        await serve(project)
        counts = await project.state.jobs.counts(job)
        assert not site.seen("/forged")
        assert (counts.done, counts.dead) == (1, 1)
