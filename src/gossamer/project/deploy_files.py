"""The files for running a project in containers on one host or as systemd services. `gossamer new --deploy` writes
them.

The templates are in deploy_templates beside this file. The units in the repository's own deploy/systemd are those of a
project called gossamer; tests compare both.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import msgspec

from .. import __version__
from ..errors import Misconfigured
from ..settings import FILE_NAME, Settings
from .spiders.scaffold import write_new

PLACE = "deploy"


class _Unit(msgspec.Struct, frozen=True, kw_only=True):
    about: str
    description: str
    command: str
    stop: str
    before_kill: str = ""


UNITS = {
    "worker": _Unit(
        about="Workers of the project in {folder}, watched by their own supervisor",
        description="Gossamer workers",
        command="worker --processes 4",
        before_kill="# Pages in progress have crawl.drain, 10 s, and the stores 20 s more.\n",
        stop="45s",
    ),
    "scheduler": _Unit(
        about="The scheduler of a project; on several machines one of them leads. The project is in {folder}",
        description="Gossamer scheduler",
        command="scheduler",
        stop="30s",
    ),
    "server": _Unit(
        about="The HTTP server of a project. The project is in {folder}",
        description="Gossamer server",
        command="serve",
        stop="45s",
    ),
}


def deploy_files(name: str, spider: str) -> dict[str, str]:
    """Path in the project -> its text. `name` is the project's name in lower case."""
    fill = {"name": name, "spider": spider, "version": __version__}
    found = {
        f"{PLACE}/{file}": _filled(file, **fill) for file in ("compose.yaml", "Dockerfile", "secrets.sh", "README.md")
    }
    found[f"{PLACE}/.gitignore"] = "secrets/\n"
    return {**found, **{f"{PLACE}/systemd/{name}-{one}.service": unit_of(name, one) for one in UNITS}}


def unit_of(name: str, process: str) -> str:
    """The unit of one of a project's processes."""
    fields = msgspec.structs.asdict(UNITS[process])
    fields["about"] = fields["about"].format(folder=f"/srv/{name}")
    return _filled("unit.service", name=name, process=process, **fields)


def _filled(file: str, **fields: str) -> str:
    """A template with its fields filled in; other braces stay as they are."""
    text = (files(__package__) / "deploy_templates" / file).read_text(encoding="utf-8")
    return re.sub(r"\{(\w+)\}", lambda found: fields.get(found[1], found[0]), text)


def add_deploy_files(settings: Settings, spider: str) -> list[Path]:
    """Write the files into a project, without overwriting any. Raises Misconfigured."""
    root = settings.root
    if not (root / FILE_NAME).exists():
        raise Misconfigured(
            f"There is no {FILE_NAME} in {root}. `gossamer new NAME --deploy` makes a project with one."
        )
    name = re.sub(r"[^a-z0-9_-]+", "-", (settings.project or root.resolve().name).lower()).strip("-_") or "crawls"
    return write_new(root, deploy_files(name, spider))
