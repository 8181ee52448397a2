"""What the code of a project imports from its own folders: checked for its owner like the code itself.

What it does: `make_importable` puts folders at the end of sys.path and notes them. A finder, just before Python's own,
judges every module that is found in a noted folder, or in a folder below it that the project's code put on sys.path:
its file, its compiled copy, and the folders down to them. Installed packages are trusted, also where they lie in the
project's folder (.venv).
How it fails: ImportError with the reason of settings/trust.py, before a line of the module runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import msgspec

from ..settings.trust import distrust, distrust_code


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
        for place in _places(spec):
            if fault := self._fault(place):
                raise ImportError(fault, name=fullname, path=str(place))
        return spec

    def _fault(self, place: Path) -> str:
        """Why the file or folder, or one of the folders that lead to it, is not ours."""
        home = self._home(place)
        if home is None:
            return ""
        while place != home:
            if fault := distrust_code(place):
                return fault
            place = place.parent
        return ""

    def _home(self, place: Path) -> Path | None:
        """The project's folder that it was found in; None for what Python finds without us."""
        if not (noted := [folder for folder in self.folders if place.is_relative_to(folder)]):
            return None
        home = max(noted, key=lambda folder: len(folder.parts))
        entries = [(entry, _resolved(entry or os.getcwd())) for entry in sys.path if isinstance(entry, str)]
        above = [(entry, folder) for entry, folder in entries if place.is_relative_to(folder)]
        if above:
            entry, folder = max(above, key=lambda pair: len(pair[1].parts))
            if folder not in self.folders and entry in self._given:
                return None
        return home


_FINDER = _OwnedModules()
# Where Python, this package and what it needs are installed.
_INSTALLED = tuple(
    f"{folder}{os.sep}"
    for folder in (Path(os.__file__).parent, Path(__file__).parents[1], Path(msgspec.__file__).parents[1])
)


@lru_cache(maxsize=256)
def _resolved(entry: str) -> Path:
    return Path(entry).resolve()


def _places(spec: ModuleSpec) -> Iterator[Path]:
    for name in (spec.origin if spec.has_location else None, spec.cached, *(spec.submodule_search_locations or ())):
        if name is not None:
            path = Path(name)
            yield path.parent.resolve() / path.name
