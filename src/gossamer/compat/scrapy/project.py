"""The Scrapy projects of a folder: the settings modules named in scrapy.cfg, and the spiders in their modules.

Spiders are found as Scrapy finds them; of several projects in one scrapy.cfg all of them, unless SCRAPY_PROJECT names
one. A class becomes one of ours when it runs: five thousand of them are listed, not
made.
How it fails: a module that does not load is reported with its line, and a class with what is wrong in it; neither hides
the others.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from configparser import ConfigParser
from configparser import Error as BadConfig
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import scrapy
from scrapy.addons import AddonManager
from scrapy.settings import Settings
from scrapy.spiderloader import SpiderLoader
from scrapy.utils.misc import load_object
from scrapy.utils.spider import DefaultSpider, iter_spider_classes

from ...errors import Misconfigured
from ...parse.discovery import (
    BrokenFile,
    SpiderCatalogue,
    SpiderSpec,
    broken_file,
    make_importable,
    summary_of,
)
from ...parse.spider import Spider
from ...settings.trust import distrust, distrust_code
from .declarations import class_faults

CONFIG = "scrapy.cfg"
MODULE = "SCRAPY_SETTINGS_MODULE"
PROJECT = "SCRAPY_PROJECT"
DEFAULT = "default"

Refuse = Callable[[Path], str]


def project_catalogue(root: Path, refuse: Refuse) -> SpiderCatalogue:
    """The spiders of the Scrapy projects in `root`, and what does not load. `refuse` says why a file must not be loaded
    now."""
    file = root / CONFIG
    spiders: dict[str, SpiderSpec] = {}
    broken: list[BrokenFile] = []
    known: list[Settings] = []
    try:
        modules = settings_modules(root)
    except Misconfigured as error:
        return SpiderCatalogue((), (BrokenFile(file, None, str(error)),))
    for project, module in modules.items():
        try:
            settings = _settings_in(module, root, refuse)
        except Misconfigured as error:
            broken.append(BrokenFile(file, None, str(error)))
        except Exception as error:  # whatever the settings module does
            broken.append(broken_file(file, error))
        else:
            known.append(settings)
            for spec in _spiders_of(settings, file, refuse, broken).values():
                if (first := spiders.setdefault(spec.name, spec)) is not spec:
                    words = f"{spec.name} is hidden by that in {first.path}: {PROJECT}={project} shows it"
                    broken.append(BrokenFile(spec.path, None, words))
    return SpiderCatalogue(tuple(spiders.values()), tuple(broken), partial(_remarks, known))


def _spiders_of(settings: Settings, file: Path, refuse: Refuse, broken: list[BrokenFile]) -> dict[str, SpiderSpec]:
    """The spiders of one project by name; of one name the last one counts, as in Scrapy."""
    spiders: dict[str, SpiderSpec] = {}
    for found in _found(settings, file, refuse):
        if isinstance(found, BrokenFile):
            broken.append(found)
            continue
        if (before := spiders.get(found.name)) is not None:
            words = f"{before.cls.__name__} is hidden: {found.cls.__name__} in {found.path} is called {found.name} too"
            broken.append(BrokenFile(before.path, None, words))
        spiders[found.name] = found
    return spiders


def _remarks(known: Sequence[Settings]) -> Sequence[str]:
    from .settings_table import remarks_of  # with all of Scrapy's parts, which take time to load

    return list(dict.fromkeys(remark for settings in known for remark in remarks_of(settings)))


def project_settings(root: Path, refuse: Refuse = lambda path: "") -> Settings:
    """The settings of the (first) project in `root`, or Scrapy's own if there is none. Raises Misconfigured, and
    whatever the settings module raises."""
    module = next(iter(settings_modules(root).values()), "")
    return _settings_in(module, root, refuse) if module else Settings()


def _settings_in(module: str, root: Path, refuse: Refuse) -> Settings:
    make_importable(root)
    package = root / module.partition(".")[0]  # the package's own code runs before the settings
    if why := _unfit(package / "__init__.py", lambda path: "") or _unfit(_origin(module), refuse):
        raise Misconfigured(why)
    settings = Settings()
    settings.setmodule(module, priority="project")
    AddonManager.load_pre_crawler_settings(settings)
    return settings


def shell_spider(root: Path) -> type[Spider]:
    """The spider of a prompt, with the settings of the project in `root`. Raises what `project_settings` does."""
    return _adapted(DefaultSpider, project_settings(root))


def spiders_in(module: ModuleType, settings: Settings) -> list[SpiderSpec | BrokenFile]:
    """The spiders that a module defines."""
    path = Path(module.__file__ or module.__name__)
    return [_spec(one, path, settings) for one in iter_spider_classes(module)]


def _spec(cls: type[scrapy.Spider], path: Path, settings: Settings) -> SpiderSpec | BrokenFile:
    if not isinstance(cls.name, str):
        return BrokenFile(path, None, f"the name of {cls.__name__} is {cls.name!r:.60}, which is not a text")
    return SpiderSpec(cls.name, path, cls, summary_of(cls), class_faults(cls), partial(_adapted, settings=settings))


def _adapted(cls: type[scrapy.Spider], settings: Settings) -> type[Spider]:
    from .spider import adapted  # with Scrapy's engine room, which takes time to load

    try:
        return adapted(cls, settings)
    except Misconfigured:
        raise
    except Exception as error:  # properties and class attributes may be anything
        raise Misconfigured(f"Spider {cls.name} cannot be used ({type(error).__name__}: {error}).") from error


def _found(settings: Settings, file: Path, refuse: Refuse) -> Iterator[SpiderSpec | BrokenFile]:
    loader = load_object(settings["SPIDER_LOADER_CLASS"])
    if loader is not SpiderLoader:
        yield from _loaded(loader, settings, file)
        return
    for name in settings.getlist("SPIDER_MODULES"):
        for found in _modules(name, file, refuse):
            if isinstance(found, BrokenFile):
                yield found
            else:
                yield from spiders_in(found, settings)


def _loaded(loader: Any, settings: Settings, file: Path) -> Iterator[SpiderSpec | BrokenFile]:
    """What the project's own loader of spiders finds."""
    try:
        own = loader.from_settings(settings)
        for name in own.list():
            cls = own.load(name)
            yield _spec(cls, Path(inspect.getsourcefile(cls) or file), settings)
    except Exception as error:  # of the project's code
        yield broken_file(file, error)


def settings_modules(root: Path) -> dict[str, str]:
    """The settings modules of the projects in `root`, by the name of the project, `default` first. Raises
    Misconfigured."""
    file = root / CONFIG
    if module := os.environ.get(MODULE):
        return {DEFAULT: module}
    if not file.is_file():
        return {}
    if fault := distrust(file):
        raise Misconfigured(fault)
    config = ConfigParser()
    try:
        config.read_string(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, BadConfig) as error:
        raise Misconfigured(f"it cannot be read: {' '.join(str(error).split())}") from error
    named = dict(config.items("settings")) if config.has_section("settings") else {}
    project = os.environ.get(PROJECT)
    if not named or (project and project.lower() not in named):
        raise Misconfigured(
            f"it names no settings module: write [settings] and {project or DEFAULT} = package.settings"
        )
    if project:
        return {project: named[project.lower()]}
    return dict(sorted(named.items(), key=lambda pair: pair[0] != DEFAULT))


def _modules(name: str, file: Path, refuse: Refuse, place: Path | None = None) -> Iterator[ModuleType | BrokenFile]:
    """The module of that name and those below it, or why one does not load."""
    module = sys.modules.get(name)
    if module is None:
        path = file
        try:
            path = place or _origin(name) or file
            if why := refuse(path):
                yield BrokenFile(path, None, why)
                return
            module = importlib.import_module(name)  # which does not load what another user could have written
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a module may raise anything, even SystemExit
            yield broken_file(path, error)
            return
    yield module
    for finder, below, is_package in pkgutil.iter_modules(getattr(module, "__path__", ())):
        folder = Path(getattr(finder, "path", file.parent))
        path = folder / below / "__init__.py" if is_package else folder / f"{below}.py"
        yield from _modules(f"{name}.{below}", file, refuse, path)


def _origin(module: str) -> Path | None:
    """The file of a module, before it is loaded. Raises ImportError, and whatever the packages above it raise."""
    spec = find_spec(module)
    return Path(spec.origin) if spec is not None and spec.origin and spec.has_location else None


def _unfit(path: Path | None, refuse: Refuse) -> str:
    if path is None:
        return ""
    return distrust_code(path).removesuffix(".") or refuse(path)
