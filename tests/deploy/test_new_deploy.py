"""What `gossamer new --deploy` writes: files that tools accept, and that are those of the repository's own stack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gossamer.errors import Misconfigured
from gossamer.project.deploy_files import UNITS, add_deploy_files, unit_of
from gossamer.settings import load
from tests.unit.commandline import COMMAND

from .test_image_and_compose import COMPOSE
from .tools import DEPLOY, program, said

SHARED = ("valkey", "postgres", "s3", "scheduler", "server", "worker", "gossamer")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project Book-Shop, made with --deploy."""
    parent = tmp_path_factory.mktemp("new")
    said(COMMAND, "new", "Book-Shop", "--deploy", cwd=parent)
    return parent / "Book-Shop"


def plain(service: dict[str, Any]) -> dict[str, Any]:
    """A service without what differs by design: where its image and its project come from."""
    environment = {name: text for name, text in service.get("environment", {}).items() if name != "GOSSAMER_PROJECT"}
    kept = {name: value for name, value in service.items() if name not in ("image", "build", "volumes", "environment")}
    stores = {"image": service["image"]} if "build" not in service else {}
    return {**kept, **stores, "environment": environment}


def test_the_stack_of_a_project_is_that_of_the_repository(written: Path) -> None:
    compose = yaml.safe_load((written / "deploy" / "compose.yaml").read_text())
    assert compose["name"] == "book-shop"
    assert set(compose["services"]) == set(SHARED)
    for name in SHARED:
        assert plain(compose["services"][name]) == plain(COMPOSE["services"][name]), name
    used = {secret for service in compose["services"].values() for secret in service.get("secrets", ())}
    assert used == set(compose["secrets"])
    mounted = [volume.split(":")[0] for volume in compose["services"]["worker"]["volumes"] if volume[0] == "."]
    assert all((written / "deploy" / path).exists() for path in mounted)
    said("sh", written / "deploy" / "secrets.sh")
    assert used <= {file.name for file in (written / "deploy" / "secrets").iterdir()}
    assert "{name}" not in "".join(file.read_text() for file in (written / "deploy").rglob("*") if file.is_file())


def test_tools_accept_the_files(written: Path) -> None:
    said(program("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", written / "deploy" / "compose.yaml")
    said(program("hadolint"), written / "deploy" / "Dockerfile")


def test_the_units_of_the_repository_are_those_of_a_project_called_gossamer(written: Path) -> None:
    for process in UNITS:
        assert (DEPLOY / "systemd" / f"gossamer-{process}.service").read_text() == unit_of("gossamer", process)
        unit = (written / "deploy" / "systemd" / f"book-shop-{process}.service").read_text()
        assert "WorkingDirectory=/srv/book-shop\n" in unit


def test_nothing_is_overwritten_and_nothing_made_outside_a_project(written: Path, tmp_path: Path) -> None:
    (written / "deploy" / "README.md").write_text("mine")
    with pytest.raises(Misconfigured, match="exists already, and nothing was changed"):
        add_deploy_files(load(start=written, environ={}), "book-shop")
    assert (written / "deploy" / "README.md").read_text() == "mine"
    with pytest.raises(Misconfigured, match="gossamer new NAME --deploy"):
        add_deploy_files(load(start=tmp_path, environ={}), "x")
