"""The Compose stack of deploy/, in a copy of that folder, and sites in containers of their own beside it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.deploy.tools import ROOT
from tests.patience import poll_until

from .engine import BASE, HERE, Engine

README = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
COPIED = ("deploy", "src", "pyproject.toml", "README.md", "LICENSE", ".dockerignore")
EXTRA = {"/", "/robots.txt"}
README_SITE = "site"  # which the spider crawls unless it is given another one


class Site:
    """`asked` is the site's own log: how often each of its pages was requested."""

    def __init__(self, name: str, pages: int, log: Path) -> None:
        self.name, self.pages, self._log = name, pages, log
        self.schedule = "quotes" if name == README_SITE else name  # that of deploy/README.md is called so

    def asked(self) -> Counter[str]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return Counter(line.split()[2] for line in lines)

    def count(self) -> int:
        return sum(1 for path in self.asked() if path not in EXTRA)

    def workers(self) -> set[str]:
        return {line.split()[1] for line in self._log.read_text().splitlines()}

    def wait_for(self, pages: int) -> None:
        poll_until(lambda: self.count() >= pages, f"{pages} pages of {self.name}", every=0.1, said=self.asked)

    def twice(self) -> dict[str, int]:
        return {path: times for path, times in self.asked().items() if times > 1 and path not in EXTRA}


class Stack:
    """`name` is that of the Compose project. Two stacks of one engine have nothing in common but the images."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine, self.name = engine, name
        self.folder = engine.folder / f"stack-{name}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        for entry in COPIED:
            if (ROOT / entry).is_dir():
                shutil.copytree(
                    ROOT / entry, self.folder / entry, ignore=shutil.ignore_patterns("__pycache__", "secrets")
                )
            else:
                shutil.copy2(ROOT / entry, self.folder / entry)
        shutil.copytree(HERE / "project", self.folder / "project")
        self._sites = 0
        self.told: list[str] = []

    # -- commands --------------------------------------------------------------------------------------------------

    def run(self, line: str, bad: bool = False) -> str:
        """A command as somebody would type it in the root of the repository."""
        project = {} if self.name == "gossamer" else {"COMPOSE_PROJECT_NAME": self.name}
        return self.engine.run(
            "sh", "-c", line, cwd=self.folder, bad=bad, PROJECT=str(self.folder / "project"), **project
        )

    def compose(self, words: str, bad: bool = False) -> str:
        return self.run(f"docker compose -f deploy/compose.yaml {words}", bad)

    def gossamer(self, words: str, bad: bool = False, options: str = "") -> str:
        return self.compose(f"--profile tools run --rm {options} gossamer {words}", bad)

    def ask(self, words: str) -> str:
        """A command in the scheduler's container, which is quicker than a container of its own."""
        return self.engine.podman("exec", self.container("scheduler"), "gossamer", *words.split())

    # -- containers ------------------------------------------------------------------------------------------------

    def container(self, service: str, number: int = 1) -> str:
        return f"{self.name}_{service}_{number}"

    def crash(self, container: str) -> None:
        """End its first process as a power cut does. `podman kill` would count as a stop by hand: nothing restarts."""
        os.kill(self.engine.pid(container), signal.SIGKILL)

    def address(self, container: str) -> str:
        """Where it answers in its network, which this machine can reach."""
        return self.engine.state(container, "range .NetworkSettings.Networks}}{{.IPAddress}}{{end")

    def processes(self, container: str) -> list[int]:
        """Those of the container, as this machine numbers them."""
        return [int(word) for word in self.engine.podman("top", container, "hpid").split()[1:]]

    def is_healthy(self, container: str) -> bool:
        """Run its health check once."""
        said = self.engine.run("podman", "healthcheck", "run", container, bad=True)
        return said.strip() == "" and self.engine.state(container, ".State.Running") == "true"

    def containers(self, service: str = "") -> list[str]:
        names = self.engine.podman("ps", "--format", "{{.Names}}").split()
        return sorted(name for name in names if name.startswith(f"{self.name}_{service}"))

    def wait_healthy(self, *services: str) -> None:
        for service in services:
            container = self.container(service)
            poll_until(lambda c=container: self.is_healthy(c), f"{container} is healthy", every=1.0)  # type: ignore[misc]

    # -- crawls ----------------------------------------------------------------------------------------------------

    @contextmanager
    def site(self, pages: int, delay: float = 0.05, heavy: int | None = None, name: str = "") -> Iterator[Site]:
        self._sites += 1
        name = name or f"site{self._sites}"
        log = self.folder / f"log-{name}"
        log.mkdir()
        container = f"{self.name}-{name}"
        environment = {"PAGES": str(pages), "DELAY": str(delay), "HEAVY": str(heavy)}
        self.engine.podman(
            "run", "--detach", "--stop-signal", "KILL", "--name", container, "--network", f"{self.name}_default",
            *(word for letter in "abcd" for word in ("--network-alias", f"{name}-{letter}")),
            "--volume", f"{log}:/log", "--volume", f"{HERE}/site.py:/site.py:ro",
            *(word for pair in environment.items() for word in ("--env", "=".join(pair))), BASE, "python3", "/site.py",
        )  # fmt: skip
        self.wait_for_names()
        try:
            yield Site(name, pages, log / "requests")
        finally:
            self.engine.podman("rm", "--force", "--time", "1", container, bad=True)

    def wait_for_names(self) -> None:
        """A container that comes makes the name server read its lists again; it may be late, or have read half."""
        look = ("exec", self.container("scheduler"), "getent", "hosts", "valkey", "postgres", "s3")
        poll_until(
            lambda: len(self.engine.podman(*look, bad=True).split()) >= 6, "names in the network", every=2.0,
            between=lambda: self.engine.podman("network", "reload", "--all", bad=True),
        )  # fmt: skip

    def begin(self, site: Site) -> None:
        """Begin a crawl of the site; workers pick it up."""
        self.ask(f"schedule add {site.schedule} --spider quotes --every 1d -a site={site.name}")

    def job(self, name: str) -> dict[str, Any]:
        found = [job for job in json.loads(self.ask("status --json")) if job["name"] == name]
        return dict(found[0]) if found else {}

    def wait_done(self, site: Site) -> dict[str, Any]:
        return poll_until(lambda: self._done(site), f"the crawl of {site.name}", every=1.0, said=site.asked)

    def _done(self, site: Site) -> dict[str, Any]:
        with suppress(AssertionError):  # its own store may be away
            job = self.job(site.schedule)
            return job if job.get("ending") else {}
        return {}

    def records(self, site: Site) -> dict[str, dict[str, Any]]:
        lines = self.ask(f"export --job {self.job(site.schedule)['id']} -o - --format jsonl").splitlines()
        told = [json.loads(line) for line in lines if line.startswith("{")]
        found = {record["url"]: record for record in told}
        assert len(found) == len(told)
        return found

    def close(self) -> None:
        """podman-compose's `down` knows the containers of the file alone, not those of --scale."""
        self.engine.podman("pod", "rm", "--force", "--time", "2", f"pod_{self.name}", bad=True)
        self.compose("down --volumes", bad=True)


def assert_complete(stack: Stack, site: Site) -> None:
    """Every page was asked for, and every record is there once, with what the site says."""
    wanted = {f"http://{site.name}-{'abcd'[n % 4]}/p/{n}": f"{n * 3}.00" for n in range(1, site.pages + 1)}
    assert {path for path in site.asked() if path not in EXTRA} == {f"/p/{n}" for n in range(1, site.pages + 1)}
    assert {url: record["price"] for url, record in stack.records(site).items()} == wanted


def commands_of_readme() -> list[str]:
    """The lines of `From nothing to a crawl`."""
    block = re.search(r"## From nothing to a crawl.*?```sh\n(.*?)```", README, re.S)
    assert block is not None
    return block[1].strip().splitlines()
