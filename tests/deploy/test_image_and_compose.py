"""The image and the stack on one host: files that tools accept, and that fit the program."""

from __future__ import annotations

import json
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from gossamer.process.supervisor import GRACE
from gossamer.project.spiders.spiders import spiders_of
from gossamer.settings import Settings, known_keys, load
from gossamer.settings.reader import ENV_PREFIX, FROM_FILE
from gossamer.units import parse_duration
from tests.docs.test_lists import verbs

from .tools import DEPLOY, ROOT, program, said

DOCKERFILE = (DEPLOY / "image" / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
OURS = ("scheduler", "server", "worker", "browser", "gossamer")


def test_the_dockerfile_is_as_hadolint_wants_it() -> None:
    said(program("hadolint"), DEPLOY / "image" / "Dockerfile")


def test_the_image_is_of_locked_packages_and_names_no_place_to_get_them() -> None:
    assert DOCKERFILE.count("--require-hashes") == 2
    assert not re.search(r"index-url|pypi\.|https?://(?!.*opencontainers)", DOCKERFILE)
    dev = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for name, wanted in (
        ("requirements.lock", ("server", "fleet", "profiles")),
        ("requirements-browser.lock", ("browser",)),
    ):
        lock = (DEPLOY / "image" / name).read_text(encoding="utf-8")
        pins = set(re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==(\S+)", lock, re.M))
        named = {re.split(r"[^\w.-]", line, maxsplit=1)[0].lower() for extra in wanted for line in extras[extra]}
        assert named <= {package for package, _ in pins}
        assert all(f"{package}=={version}" in re.sub(r"\[[\w,]+\]==", "==", dev) for package, version in pins), name
        assert "://" not in lock


def test_the_image_runs_as_nobody_special_and_takes_in_only_what_it_is_made_of() -> None:
    users = re.findall(r"^USER (\S+)", DOCKERFILE, re.M)
    assert users[-1] == users[0] == "10001:10001"
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored
    copied = {word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.M) for word in line.split()}
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    assert {name for name in copied if not name.startswith("deploy/image/")} <= allowed
    assert all((ROOT / name).exists() for name in copied)


def test_the_profile_for_chromium_forbids_what_is_not_named_and_lets_nobody_mount() -> None:
    profile = json.loads((DEPLOY / "image" / "chromium-seccomp.json").read_text(encoding="utf-8"))
    allowed = {name for rule in profile["syscalls"] for name in rule["names"] if rule["action"] == "SCMP_ACT_ALLOW"}
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert {"chroot", "clone", "unshare"} <= allowed  # its sandbox
    assert not {"mount", "pivot_root", "setns", "bpf", "kexec_load", "init_module", "keyctl"} & allowed
    (path,) = [one for one in COMPOSE["services"]["browser"]["security_opt"] if one.startswith("seccomp=")]
    assert (DEPLOY / path.removeprefix("seccomp=")).exists()


def test_compose_is_as_its_specification_says() -> None:
    said(program("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")


def settings_of(variables: dict[str, Any]) -> set[str]:
    names = [
        name.removeprefix(ENV_PREFIX).lower().replace("__", ".") for name in variables if name.startswith(ENV_PREFIX)
    ]
    return {name if name in known_keys() else name.removesuffix(FROM_FILE) for name in names if name != "trust"}


@pytest.mark.parametrize("name", OURS)
def test_each_process_has_known_settings_commands_limits_and_a_locked_door(name: str) -> None:
    service = COMPOSE["services"][name]
    assert settings_of(service["environment"]) <= set(known_keys())
    assert service["command"][0] in {verb.removeprefix("gossamer ") for verb in verbs()}
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert all(one["condition"] == "service_healthy" for one in service["depends_on"].values())
    if name != "gossamer":
        assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}
    if name in ("worker", "browser"):
        drain = Settings().crawl.drain + GRACE
        assert parse_duration(service["stop_grace_period"]) > drain


def test_no_password_is_in_the_environment_and_every_secret_is_made(tmp_path: Path) -> None:
    for service in COMPOSE["services"].values():
        assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"])
        for variable, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|SECRET|KEY", variable):
                assert str(value).startswith("/run/secrets/"), variable
    script = tmp_path / "secrets.sh"
    script.write_bytes((DEPLOY / "secrets.sh").read_bytes())
    said("sh", script)
    made = {file.name: file.read_text() for file in (tmp_path / "secrets").iterdir()}
    assert set(COMPOSE["secrets"]) <= set(made)
    assert made["postgres_password"] in made["records"]
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    said("sh", script)  # and what is there stays
    assert made == {file.name: file.read_text() for file in (tmp_path / "secrets").iterdir()}


def test_the_example_project_loads() -> None:
    settings = load(start=DEPLOY / "project", environ={})
    found = spiders_of(settings)
    assert [one.name for one in found.spiders] == ["quotes"]
    assert found.broken == []
