"""The image's targets, on a Debian of our own: what they need at build time and at run time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.tools import DEPLOY

from .engine import Engine

pytestmark = pytest.mark.timeout(900)
LOCKED = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "all", "--security-opt", "no-new-privileges")
PROFILE = DEPLOY / "image" / "chromium-seccomp.json"
PAGE = '<h1>raw</h1><script>document.querySelector("h1").textContent = ["by", "script"].join(" ")</script>'


@pytest.fixture(scope="module")
def images(engine: Engine) -> dict[str, str]:
    made = {}
    for target in ("worker", "browser"):
        made[target] = f"localhost/gossamer-tested:{target}"
        engine.build(made[target], DEPLOY / "image" / "Dockerfile", target, DEPLOY.parent)
    return made


@pytest.fixture
def page(engine: Engine, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A network with one page that is made by its script, and the address of the page."""
    network, name = "gossamer-page", "gossamer-page"
    (tmp_path / "index.html").write_text(PAGE)
    engine.podman("network", "create", network)
    engine.podman("run", "--detach", "--name", name, "--network", network, "--network-alias", "scripted",
                  "--stop-signal", "KILL", "--volume", f"{tmp_path}:/web:ro", "localhost/gossamer-base:1",
                  "python3", "-m", "http.server", "80", "--directory", "/web")  # fmt: skip
    try:
        yield network, "http://scripted/"
    finally:
        engine.podman("rm", "--force", name, bad=True)
        engine.podman("network", "rm", network, bad=True)


def test_the_demo_runs_as_nobody_special_on_a_root_that_nobody_writes(engine: Engine, images: dict[str, str]) -> None:
    said = engine.podman("run", "--rm", *LOCKED, "--network", "none", images["worker"], "demo")
    assert "records" in said
    told = json.loads(engine.podman("image", "inspect", images["worker"]))[0]
    assert told["Config"]["User"] == "10001:10001"
    assert told["Config"]["StopSignal"] == "SIGTERM"
    programs = engine.podman("run", "--rm", "--entrypoint", "ls", images["worker"], "/opt/gossamer/bin").split()
    assert "pip" not in programs


def test_the_browser_renders_in_its_sandbox_without_any_capability(
    engine: Engine, images: dict[str, str], page: tuple[str, str]
) -> None:
    network, url = page
    fetch = ("--shm-size", "1g", "--network", network, "--env", "GOSSAMER_FETCH__ALLOW_PRIVATE=true",
             images["browser"], "fetch", url, "--route", "browser")  # fmt: skip
    said = engine.podman("run", "--rm", *LOCKED, "--security-opt", f"seccomp={PROFILE}", *fetch)
    assert "<h1>by script</h1>" in said
    refused = engine.podman("run", "--rm", *LOCKED, *fetch, bad=True)
    assert "chromium-seccomp.json" in refused  # under the engine's own profile, and it says what to do
