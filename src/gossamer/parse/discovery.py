"""Finds spiders in Python files and recipes: by name in the project's folder, or by path. A file that does not load is
reported in one line, without a traceback."""

from __future__ import annotations

import difflib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import msgspec

from ..errors import GossamerError, Misconfigured, MissingExtra, SpiderNotFound
from ..settings.reader import SCRAPY_FILE
from ..settings.trust import distrust, distrust_code
from .spider import Spider, compose_name

RECIPE_ENDINGS = (".toml", ".yaml", ".yml")
_HOST = re.compile(r"[\w-]+(\.[\w-]+)+(:\d+)?(/\S*)?|localhost(:\d+)?(/\S*)?")
MOST_NAMES = 50  # spiders that an error message names
_LOOK = 256 * 1024  # bytes of a file that are searched


class SpiderSpec(msgspec.Struct, frozen=True):
    """A spider that loads. `summary` is the first line of its docstring, `faults` are what is wrong with this class
    alone. A class of another framework becomes one of ours when it is asked for: `adapt` does that."""

    name: str
    path: Path
    cls: type[Any]  # Any: a class of another framework
    summary: str = ""
    faults: tuple[str, ...] = ()
    adapt: Callable[[type[Any]], type[Spider]] | None = None

    @property
    def spider(self) -> type[Spider]:
        """Raises Misconfigured for a class that cannot be made one of ours."""
        spider: type[Spider] = self.cls if self.adapt is None else self.adapt(self.cls)
        return spider


class BrokenFile(msgspec.Struct, frozen=True):
    """A spider file that does not load, and why."""

    path: Path
    line: int | None
    message: str

    def __str__(self) -> str:
        where = f"{self.path}, line {self.line}" if self.line else str(self.path)
        return f"{where}: {self.message}"


class SpiderCatalogue(msgspec.Struct, frozen=True):
    """`remarks` gives a sentence for each setting of a Scrapy project that has no effect."""

    spiders: tuple[SpiderSpec, ...]
    broken: tuple[BrokenFile, ...]
    remarks: Callable[[], Sequence[str]] = tuple


class _DoesNotLoad(Exception):
    def __init__(self, file: BrokenFile) -> None:
        super().__init__(str(file))
        self.file = file


def is_recipe_name(name: str) -> bool:
    """Could a file of this name be a recipe?"""
    return name.lower().endswith(RECIPE_ENDINGS)


def list_spiders(root: Path, folder: str, *, refuse: Callable[[Path], str] = lambda path: "") -> SpiderCatalogue:
    """Every spider and recipe in `<root>/<folder>`, by name, and the files that do not load.

    `refuse` is asked before a file is loaded; a file for which it returns a reason is listed as broken.
    """
    spiders: list[SpiderSpec] = []
    broken: list[BrokenFile] = []
    for path in _spider_files(root, folder):
        if why := refuse(path):
            broken.append(BrokenFile(path, None, why))
            continue
        try:
            spiders += _spiders_in(path, root)
        except _DoesNotLoad as error:
            broken.append(error.file)
        except Exception as error:  # one bad file must not hide the others
            broken.append(BrokenFile(path, None, _tell(error)))
    theirs = _scrapy_spiders(root, refuse)
    spiders, broken = [*spiders, *theirs.spiders], [*broken, *theirs.broken]
    return SpiderCatalogue(tuple(sorted(spiders, key=lambda spec: spec.name)), tuple(broken), theirs.remarks)


def _scrapy_spiders(root: Path, refuse: Callable[[Path], str]) -> SpiderCatalogue:
    """The spiders of a Scrapy project in `root`, if one is there."""
    file = root / SCRAPY_FILE
    if not file.is_file():
        return SpiderCatalogue((), ())
    if find_spec("scrapy") is None:
        missing = BrokenFile(file, None, "a Scrapy project needs Scrapy: pip install 'gossamer[scrapy]'")
        return SpiderCatalogue((), (missing,))
    from ..compat.scrapy.project import project_catalogue  # rarely needed and slow to import

    return project_catalogue(root, refuse)


def shell_spider(root: Path) -> Spider | None:
    """A spider for a prompt in a Scrapy project; None elsewhere. Raises Misconfigured."""
    if not (root / SCRAPY_FILE).is_file() or find_spec("scrapy") is None:
        return None
    from ..compat.scrapy import project

    try:
        return made_spider(project.shell_spider(root))
    except GossamerError:
        raise
    except Exception as error:  # whatever the settings module does
        raise Misconfigured(f"This file does not load: {broken_file(root / SCRAPY_FILE, error)}.") from error


def _spider_files(root: Path, folder: str) -> list[Path]:
    """The files that may hold spiders. The project's root folder has other TOML and YAML files too: there a file must
    contain "pages" to count as a recipe."""
    place = root / folder
    files = [*place.glob("*.py"), *(path for path in place.glob("*.*") if is_recipe_name(path.name))]
    crowded = place.resolve() == root.resolve()
    return sorted(
        path
        for path in files
        if not path.name.startswith("_") and not (crowded and path.suffix != ".py" and not _speaks_of_pages(path))
    )


def _speaks_of_pages(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return path.name != "gossamer.toml" and b"pages" in stream.read(_LOOK)
    except OSError:
        return False


def is_file_ref(ref: str) -> bool:
    """Is `ref` a file rather than the name of a spider?"""
    return ref.endswith(".py") or ".py:" in ref or is_recipe_name(ref)


def file_of(ref: str) -> str:
    """The path in a `ref` to a file, without the class."""
    file, colon, _ = ref.partition(".py:")
    return f"{file}.py" if colon else ref


def load_spider(ref: str, root: Path, folder: str) -> type[Spider]:
    """The spider that `ref` names: `books`, `path/file.py`, `path/file.py:Books` or `path/recipe.toml`. Raises
    SpiderNotFound, BadRecipe."""
    if is_recipe_name(ref):
        return _from_recipe(root / ref, ref)
    if is_file_ref(ref):
        return _from_file(root / file_of(ref), ref.partition(".py:")[2], root)
    return spider_named(ref, list_spiders(root, folder), root / folder)


def made_spider(kind: type[Spider]) -> Spider:
    """A spider of that class. Raises Misconfigured."""
    try:
        return kind()
    except GossamerError:
        raise
    except Exception as error:  # the constructor is user code
        raise Misconfigured(
            f"Spider {kind.name} cannot be created ({type(error).__name__}: {error}). Its __init__ gets no arguments;"
            f" declare what a crawl may set as annotated attributes: `category: str = 'all'`."
        ) from error


def spider_named(name: str, catalogue: SpiderCatalogue, place: Path) -> type[Spider]:
    """The spider of that name in a catalogue of the folder `place`. Raises SpiderNotFound."""
    name = compose_name(name)
    found = [spec for spec in catalogue.spiders if compose_name(spec.name) == name]
    if len(found) == 1:
        return found[0].spider
    if found:
        places = ", ".join(f"{spec.path}:{spec.cls.__name__}" for spec in found)
        raise SpiderNotFound(
            f"There are {len(found)} spiders called {name!r}: {places}. Rename one, or write path/file.py:Class."
        )
    for file in catalogue.broken:
        if compose_name(file.path.stem) in (name, name.replace("-", "_")):
            raise SpiderNotFound(f"This file does not load: {file}.")
    within = [spec.name for spec in catalogue.spiders if compose_name(spec.path.stem) == name]
    if within:
        raise SpiderNotFound(
            f"There is no spider {name!r}; the file of that name holds {', '.join(map(repr, within))}."
        )
    parts = [f"There is no spider {name!r} in {place}."]
    names = list(dict.fromkeys(spec.name for spec in catalogue.spiders))
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        parts.append(f"Did you mean {near[0]!r}?")
    elif _HOST.fullmatch(name):
        raise SpiderNotFound(f"There is no spider {name!r}. To crawl a site, write its whole address: https://{name}")
    if names:
        more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
        parts.append(f"There are: {', '.join(names[:MOST_NAMES])}{more}.")
    else:
        parts.append("The folder holds no spiders; `gossamer new` creates a project with one.")
    parts += [f"This file does not load: {file}." for file in catalogue.broken]
    raise SpiderNotFound(" ".join(parts))


def _from_file(path: Path, class_name: str, root: Path) -> type[Spider]:
    if not path.is_file():
        raise _no_file(path, [file.name for file in path.parent.glob("*.py")])
    try:
        specs = _spiders_in(path, root)
    except _DoesNotLoad as error:
        raise SpiderNotFound(f"This file does not load: {error.file}.") from error.__cause__
    if class_name:
        specs = [spec for spec in specs if class_name in (spec.cls.__name__, spec.name)] or specs
        if len(specs) == 1 and class_name in (specs[0].cls.__name__, specs[0].name):
            return specs[0].spider
    elif len(specs) == 1:
        return specs[0].spider
    names = ", ".join(spec.cls.__name__ for spec in specs)
    if not specs:
        raise SpiderNotFound(f"{path} holds no spider. Write a class that inherits from gossamer.Spider.")
    if class_name:
        near = difflib.get_close_matches(class_name, [spec.cls.__name__ for spec in specs], n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise SpiderNotFound(f"{path} holds no spider {class_name!r}; it holds {names}.{hint}")
    raise SpiderNotFound(f"{path} holds several spiders: {names}. Say which: {path.name}:{specs[0].cls.__name__}.")


def _from_recipe(path: Path, shown: str) -> type[Spider]:
    from ..recipe.reader import load_recipe

    if not path.is_file():
        raise _no_file(path, [file.name for file in path.parent.glob("*.*") if is_recipe_name(file.name)])
    if fault := distrust_code(path):
        raise SpiderNotFound(fault)
    return load_recipe(path, shown)


def _no_file(path: Path, others: list[str]) -> SpiderNotFound:
    near = difflib.get_close_matches(path.name, others, n=1)
    hint = f" Did you mean {path.parent / near[0]}?" if near else ""
    return SpiderNotFound(f"There is no file {path}.{hint}")


def _recipes_in(path: Path, root: Path) -> list[SpiderSpec]:
    from ..recipe.reader import load_recipe
    from ..recipe.table import BadRecipe

    shown = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
    try:
        spider = load_recipe(path, shown)
    except BadRecipe as error:
        raise _DoesNotLoad(BrokenFile(path, error.faults[0].line, error.faults[0].message)) from error
    except MissingExtra as error:
        raise _DoesNotLoad(BrokenFile(path, None, str(error))) from error
    return [SpiderSpec(spider.name, path, spider, spider.recipe.summary)]


def _spiders_in(path: Path, root: Path) -> list[SpiderSpec]:
    if fault := distrust_code(path):
        raise _DoesNotLoad(BrokenFile(path, None, fault.removesuffix(".")))
    if is_recipe_name(path.name):
        return _recipes_in(path, root)
    module = _load(path, root)
    spiders = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Spider)
        and value.__module__ == module.__name__
        and not value.__name__.startswith("_")
    ]
    for spider in spiders:
        if not isinstance(spider.name, str):
            told = f"the name of {spider.__name__} is {spider.name!r:.60}, which is not a text"
            raise _DoesNotLoad(BrokenFile(path, None, told))
    found = [SpiderSpec(spider.name, path, spider, summary_of(spider)) for spider in spiders]
    if "scrapy" in sys.modules and not spiders:
        from ..compat.scrapy.project import project_settings, spiders_in

        for one in spiders_in(module, project_settings(root)):
            if isinstance(one, BrokenFile):
                raise _DoesNotLoad(one)
            found.append(one)
    return found


def summary_of(cls: type) -> str:
    """The first line of its docstring."""
    return (cls.__dict__.get("__doc__") or "").strip().partition("\n")[0]


class _FromSource(SourceFileLoader):
    """Loads from source, never from the cached .pyc: Python considers that current if second and length match, so a
    quick one-letter fix would run the old code."""

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def _load(path: Path, root: Path) -> ModuleType:
    """Import a file under a unique name, once per version of the file."""
    path = path.resolve()
    stamp = f"{path}:{path.stat().st_mtime_ns}:{path.stat().st_size}"
    name = f"gossamer_spiders.{path.stem}_{blake2b(stamp.encode(), digest_size=6).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    make_importable(path.parent, root)
    spec = spec_from_file_location(name, path, loader=_FromSource(name, str(path)))
    if spec is None or spec.loader is None or path.suffix != ".py":
        raise _DoesNotLoad(BrokenFile(path, None, "it is not a Python file"))
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a file may raise anything, even SystemExit
        del sys.modules[name]
        raise _DoesNotLoad(broken_file(path, error)) from error
    return module


def broken_file(path: Path, error: BaseException) -> BrokenFile:
    """The report on a file that raised this error while it was loaded."""
    return BrokenFile(path, _line_of(error, path), _tell(error))


def _line_of(error: BaseException, path: Path) -> int | None:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines else None


def _tell(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        elsewhere = f" in {error.filename}, line {error.lineno}" if error.filename else ""
        return f"syntax error: {error.msg}{elsewhere if error.text is None else ''}"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def make_importable(*folders: Path) -> None:
    """Let files of a project import each other. At the end of sys.path the folders shadow nothing."""
    for folder in (one.resolve() for one in folders):
        check_imports(folder)
        if str(folder) not in sys.path and not distrust(folder):
            sys.path.append(str(folder))


def check_imports(folder: Path) -> None:
    """From now on, no module below this folder is imported if another user could have written it."""
    _FINDER.folders.add(folder.resolve())
    _FINDER.install()


class _OwnedModules:
    """Finds what Python's own finder would find, and refuses what is not ours."""

    def __init__(self) -> None:
        self.folders: set[Path] = set()
        self._given: set[str] = set()  # what was on sys.path before the first project

    def install(self) -> None:
        if self not in sys.meta_path:
            self._given = set(sys.path)
            place = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
            sys.meta_path.insert(place, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or (spec.origin or "").startswith(_INSTALLED):  # nearly always: to follow links takes time
            return spec
        for level in dict.fromkeys(level for place in _places(spec) for level in self._levels(place)):
            if fault := distrust(level):
                raise ImportError(fault, name=fullname, path=str(level))
        return spec

    def _levels(self, place: Path) -> tuple[Path, ...]:
        """The file or folder and the folders that lead to it, within the project that it belongs to."""
        folders = _way_to(place.parent, frozenset(self.folders), frozenset(self._given), tuple(sys.path), os.getcwd())
        if place in self.folders or not folders:
            return ()
        return (place, place.resolve().parent, *folders) if place.is_symlink() else (place, *folders)


@lru_cache(maxsize=256)
def _way_to(
    folder: Path, projects: frozenset[Path], given: frozenset[str], search: tuple[str, ...], here: str
) -> tuple[Path, ...]:
    """The folders from this one up to that of its project; none for what Python finds without us in `here`."""
    if not (noted := [one for one in projects if folder.is_relative_to(one)]):
        return ()
    home = max(noted, key=lambda one: len(one.parts))
    entries = [(entry, _resolve(entry or here)) for entry in search if isinstance(entry, str)]
    above = [(entry, one) for entry, one in entries if folder.is_relative_to(one)]
    if above:
        entry, nearest = max(above, key=lambda pair: len(pair[1].parts))
        if nearest not in projects and entry in given:
            return ()
    levels = [folder, *folder.parents]
    return tuple(levels[: levels.index(home) + 1])


_FINDER = _OwnedModules()
# Where Python, this package and what it needs are installed.
_INSTALLED = tuple(
    f"{folder}{os.sep}"
    for folder in (Path(os.__file__).parent, Path(__file__).parents[1], Path(msgspec.__file__).parents[1])
)


@lru_cache(maxsize=256)
def _resolve(entry: str) -> Path:
    return Path(entry).resolve()


def _places(spec: ModuleSpec) -> Iterator[Path]:
    for name in (spec.origin if spec.has_location else None, spec.cached, *(spec.submodule_search_locations or ())):
        if name is not None:
            path = Path(name)
            yield _resolve(str(path.parent)) / path.name
