"""Units of systemd and workflows: they name commands and targets that exist."""

from __future__ import annotations

import configparser
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from gossamer.process.supervisor import GRACE
from gossamer.settings import Settings
from gossamer.units import parse_duration
from tests.docs.test_lists import options_of, verbs
from tests.patience import PATIENCE

from .tools import DEPLOY, ROOT, program, said

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
WORKFLOWS = ROOT / ".github" / "workflows"


def read(unit: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit, encoding="utf-8")
    return parser


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_runs_a_command_that_exists_and_gives_it_time_to_drain(unit: Path) -> None:
    service = read(unit)["Service"]
    command, verb, *words = service["ExecStart"].split()
    assert command == "/opt/gossamer/bin/gossamer"
    flags = {flag for option in options_of(verbs()[f"gossamer {verb}"]) for flag in option.opts}
    assert {word for word in words if word.startswith("-")} <= flags
    if verb == "worker":
        assert parse_duration(service["TimeoutStopSec"]) >= Settings().crawl.drain + GRACE
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")


def test_systemd_knows_every_line_of_the_units() -> None:
    analyze = program("systemd-analyze", "it comes with systemd")
    done = subprocess.run([analyze, "verify", *UNITS], capture_output=True, text=True, timeout=PATIENCE)
    ours = [line for line in done.stderr.splitlines() if "gossamer" in line]
    assert [line for line in ours if "is not executable" not in line] == []


@pytest.mark.parametrize("name", ["check", "release"])
def test_a_workflow_is_valid_and_calls_targets_that_exist(name: str) -> None:
    workflow = WORKFLOWS / f"{name}.yml"
    said(program("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", workflow)
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    called = {word for run in commands if run.startswith("make ") for word in run.split()[1:] if word.isidentifier()
              or "-" in word}  # fmt: skip
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    wanted = {"check": {"lint", "test", "package", "image"}, "release": {"lint", "test-all", "package-check", "image"}}
    assert wanted[name] <= called <= targets
    if name == "check":
        assert jobs["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]
