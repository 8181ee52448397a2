"""A Scrapy project in a folder: which spiders it has, and that the fault of one is no fault of the others."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count

import pytest

from gossamer import settings as settings_module
from gossamer.errors import Misconfigured
from gossamer.parse.discovery import list_spiders, load_spider

pytestmark = pytest.mark.filterwarnings("ignore::scrapy.exceptions.ScrapyDeprecationWarning")
_NUMBERS = count()

GOOD = """
import scrapy

class Good(scrapy.Spider):
    name = "good"
    start_urls = ["http://shop.example/"]

    def parse(self, response):
        yield {"url": response.url}
"""
FAULTY = {
    "slash": 'allowed_domains = ["mistercarwash.example/", "shop.example"]',
    "scheme": 'allowed_domains = ["https://shop.example"]',
    "property": """
    @property
    def start_urls(self):
        return ["http://shop.example/by-property"]

    @property
    def allowed_domains(self):
        return ["shop.example"]

    @property
    def handle_httpstatus_list(self):
        return [404]
""",
    "demanding": """
    def __init__(self, kind, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [f"http://shop.example/{kind}"]
""",
    "listed": "custom_settings = ['not a dict']",
    "text": 'start_urls = "http://shop.example/one"',
    "raising": """
    @classmethod
    def update_settings(cls, settings):
        raise RuntimeError("no settings today")
""",
}


@pytest.fixture
def project(tmp_path):
    """A project of one good spider and one of each fault."""
    name = f"chain_{next(_NUMBERS)}"
    spiders = tmp_path / name / "spiders"
    spiders.mkdir(parents=True)
    (tmp_path / "scrapy.cfg").write_text(f"[settings]\ndefault = {name}.settings\n")
    (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / name / "settings.py").write_text(f"SPIDER_MODULES = ['{name}.spiders']\n")
    (spiders / "__init__.py").write_text("")
    (spiders / "good.py").write_text(GOOD)
    for one, body in FAULTY.items():
        text = f'import scrapy\n\nclass {one.title()}(scrapy.Spider):\n    name = "{one}"\n    {body}\n'
        (spiders / f"{one}.py").write_text(text)
    (spiders / "absent.py").write_text("import nowhere\n")
    (spiders / "proxies.py").write_text("raise SystemExit(1)\n")
    (spiders / "unnamed.py").write_text(
        "import scrapy\nclass Base(scrapy.Spider):\n    pass\nclass Five(Base):\n    name = 5\n"
    )
    return tmp_path


def gossamer(folder, *words):
    return subprocess.run(
        [sys.executable, "-m", "gossamer", *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_what_is_wrong_with_one_class_or_module_is_a_line_and_hides_no_spider(project):
    said = gossamer(project, "spiders", "--json")

    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert [one["name"] for one in found["spiders"]] == sorted(["good", *FAULTY])
    faults = {one["name"]: one["faults"] for one in found["spiders"] if one["faults"]}
    assert set(faults) == {"slash", "scheme", "listed"}
    assert faults["slash"] == [
        "allowed_domains: 'mistercarwash.example/' matches no host. Write 'shop.example', without scheme, port or path."
    ]
    broken = {one["file"].rpartition("/")[2]: one["error"] for one in found["broken"]}
    assert set(broken) == {"absent.py", "proxies.py", "unnamed.py"}
    assert "the name of Five is 5" in broken["unnamed.py"]
    assert gossamer(project, "spiders", "--strict").returncode == 1


@pytest.mark.parametrize(
    ("name", "urls", "domains"),
    [
        ("good", ["http://shop.example/"], "*"),
        ("slash", [], ["shop.example"]),
        ("scheme", [], []),
        ("property", ["http://shop.example/by-property"], ["shop.example"]),
        ("text", ["http://shop.example/one"], "*"),
    ],
)
def test_a_spider_runs_beside_faulty_ones_and_with_faults_that_scrapy_passes_over(project, name, urls, domains):
    spider = load_spider(name, project, "spiders")()

    spider._adjusted(settings_module.load(start=project, environ={}, flags={}))

    assert (list(spider.start_urls), spider.allowed_domains) == (urls, domains)
    assert any("matches no host" in words for words in spider._remarks()) == (name in ("slash", "scheme"))


@pytest.mark.parametrize(("name", "words"), [("raising", "no settings today"), ("listed", "cannot be used")])
def test_a_class_that_cannot_be_used_says_so_when_it_is_asked_for(project, name, words):
    with pytest.raises(Misconfigured, match=words):
        load_spider(name, project, "spiders")


def test_of_two_spiders_with_one_name_the_last_counts_and_the_other_is_named(project):
    (next(project.glob("chain_*")) / "spiders" / "zz.py").write_text(GOOD.replace("Good", "Later"))

    found = list_spiders(project, "spiders")

    assert [one.cls.__name__ for one in found.spiders if one.name == "good"] == ["Later"]
    assert any("Good is hidden: Later in" in one.message for one in found.broken)
    assert load_spider("good", project, "spiders").__name__ == "Later"


def test_a_list_of_spiders_makes_none_of_them(project):
    """What adapting costs (settings, middlewares) is paid by the spider that runs."""
    script = (
        "import sys; from pathlib import Path; from gossamer.parse.discovery import list_spiders\n"
        "assert len(list_spiders(Path.cwd(), 'spiders').spiders) == 8\n"
        "print('gossamer.compat.scrapy.spider' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"


LOADER = """
from scrapy.utils.misc import walk_modules

class Loader:
    def __init__(self, settings):
        from {name}.spiders.good import Good
        self.found = {{f"shop-{{number}}": type(f"Shop{{number}}", (Good,), {{"name": f"shop-{{number}}"}})
                       for number in range(3)}}

    @classmethod
    def from_settings(cls, settings):
        return cls(settings)

    def list(self):
        return list(self.found)

    def load(self, name):
        return self.found[name]
"""


def test_a_loader_of_the_projects_own_finds_its_spiders(project):
    package = next(project.glob("chain_*"))
    (package / "loader.py").write_text(LOADER.format(name=package.name))
    with (package / "settings.py").open("a") as settings:
        settings.write(f"SPIDER_LOADER_CLASS = '{package.name}.loader.Loader'\n")

    assert [one.name for one in list_spiders(project, "spiders").spiders] == ["shop-0", "shop-1", "shop-2"]
    assert list(load_spider("shop-1", project, "spiders").start_urls) == ["http://shop.example/"]


ADDON = """
class Slow:
    @classmethod
    def update_pre_crawler_settings(cls, settings):
        settings.set("SPIDER_MODULES", [f"{__name__.partition('.')[0]}.spiders.good"], priority="cmdline")

    def update_settings(self, settings):
        settings.set("DOWNLOAD_DELAY", 30, priority="addon")
"""


def test_add_ons_change_the_settings_of_the_project_and_of_its_spiders(project):
    package = next(project.glob("chain_*"))
    (package / "addons.py").write_text(ADDON)
    with (package / "settings.py").open("a") as settings:
        settings.write(f"ADDONS = {{'{package.name}.addons.Slow': 1}}\n")

    assert [one.name for one in list_spiders(project, "spiders").spiders] == ["good"]
    spider = load_spider("good", project, "spiders")()
    spider._adjusted(settings_module.load(start=project, environ={}, flags={}))
    assert spider.rate == "2/m"
    assert not [words for words in spider._remarks() if "ADDONS" in words]


def test_all_projects_of_a_scrapy_cfg_are_found_and_one_may_be_chosen(tmp_path, monkeypatch):
    names = {project: f"chain_{next(_NUMBERS)}" for project in ("default", "other", "broken")}
    lines = [f"{project} = {name}.settings" for project, name in names.items()]
    (tmp_path / "scrapy.cfg").write_text("\n".join(["[settings]", *reversed(lines)]))
    for project, name in names.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        agent = "1/0" if project == "broken" else f"USER_AGENT = '{project}'"
        (tmp_path / name / "settings.py").write_text(f"SPIDER_MODULES = ['{name}.spiders']\n{agent}\n")
        own = GOOD.replace("Good", "Own").replace('"good"', f'"{project}_own"')
        (tmp_path / name / "spiders.py").write_text(GOOD + own)

    found = list_spiders(tmp_path, "spiders")

    assert [one.name for one in found.spiders] == ["default_own", "good", "other_own"]
    told = sorted(one.message for one in found.broken)
    assert "ZeroDivisionError" in told[0]
    assert told[1].startswith("good is hidden by that in ")
    assert told[1].endswith("SCRAPY_PROJECT=other shows it")
    read = settings_module.load(start=tmp_path, environ={}, flags={})
    agents = [
        load_spider(name, tmp_path, "spiders")()._adjusted(read).fetch.user_agent for name in ("good", "other_own")
    ]
    assert agents == ["default", "other"]
    monkeypatch.setenv("SCRAPY_PROJECT", "other")
    assert [one.name for one in list_spiders(tmp_path, "spiders").spiders] == ["good", "other_own"]
    assert load_spider("good", tmp_path, "spiders")()._adjusted(read).fetch.user_agent == "other"
