"""A Scrapy project on disk: the settings module named in scrapy.cfg, and the spiders in its modules.

How it fails: a module that does not load is reported with its line, and does not hide others.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from configparser import Error as BadConfig
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import scrapy
from scrapy.settings import Settings

from ..errors import Misconfigured
from ..parse.discovery import BrokenFile, SpiderSpec, broken_file, make_importable, summary_of
from ..settings.trust import distrust, distrust_code
from .spider import adapted

CONFIG = "scrapy.cfg"
MODULE = "SCRAPY_SETTINGS_MODULE"
PROJECT = "SCRAPY_PROJECT"

Refuse = Callable[[Path], str]


def project_spiders(root: Path, refuse: Refuse) -> tuple[list[SpiderSpec], list[BrokenFile]]:
    """The spiders of the Scrapy project in `root`, and the files that do not load. `refuse` says why one must not."""
    file = root / CONFIG
    try:
        settings = project_settings(root, refuse)
    except Misconfigured as error:
        return [], [BrokenFile(file, None, str(error))]
    except Exception as error:  # whatever the settings module does
        return [], [broken_file(file, error)]
    spiders: list[SpiderSpec] = []
    broken: list[BrokenFile] = []
    for name in settings.getlist("SPIDER_MODULES"):
        for found in _modules(name, file, refuse):
            if isinstance(found, BrokenFile):
                broken.append(found)
            else:
                spiders += spiders_in(found, settings)
    return spiders, broken


def project_settings(root: Path, refuse: Refuse = lambda path: "") -> Settings:
    """The settings of the project in `root`, or Scrapy's own if there is none. Raises Misconfigured, and whatever the
    settings module raises."""
    settings = Settings()
    module = os.environ.get(MODULE) or _named_module(root / CONFIG)
    if module:
        make_importable(root)
        package = root / module.partition(".")[0]  # the package's own code runs before the settings
        if why := _unfit(package / "__init__.py", lambda path: "") or _unfit(_origin(module), refuse):
            raise Misconfigured(why)
        settings.setmodule(module, priority="project")
    return settings


def spiders_in(module: ModuleType, settings: Settings) -> list[SpiderSpec]:
    """The spiders that a module defines."""
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, scrapy.Spider)
        and value.__module__ == module.__name__
        and isinstance(getattr(value, "name", None), str)
    ]
    path = Path(module.__file__ or module.__name__)
    return [SpiderSpec(one.name, path, adapted(one, settings), summary_of(one)) for one in classes]


def _named_module(file: Path) -> str:
    if not file.is_file():
        return ""
    if fault := distrust(file):
        raise Misconfigured(fault)
    config = ConfigParser()
    try:
        config.read_string(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, BadConfig) as error:
        raise Misconfigured(f"it cannot be read: {' '.join(str(error).split())}") from error
    project = os.environ.get(PROJECT, "default")
    if not config.has_option("settings", project):
        raise Misconfigured(f"it names no settings module: write [settings] and {project} = package.settings")
    return config.get("settings", project)


def _modules(name: str, file: Path, refuse: Refuse) -> Iterator[ModuleType | BrokenFile]:
    """The module of that name and those below it, or why one does not load."""
    path = file
    try:
        path = _origin(name) or file
        if why := _unfit(path, refuse):
            yield BrokenFile(path, None, why)
            return
        module = importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may raise anything, even SystemExit
        yield broken_file(path, error)
        return
    yield module
    for _, below, _ in pkgutil.iter_modules(getattr(module, "__path__", ())):
        yield from _modules(f"{name}.{below}", file, refuse)


def _origin(module: str) -> Path | None:
    """The file of a module, before it is loaded. Raises ImportError, and whatever the packages above it raise."""
    spec = find_spec(module)
    return Path(spec.origin) if spec is not None and spec.origin and spec.has_location else None


def _unfit(path: Path | None, refuse: Refuse) -> str:
    if path is None:
        return ""
    return distrust_code(path).removesuffix(".") or refuse(path)
