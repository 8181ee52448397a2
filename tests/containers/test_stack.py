"""deploy/compose.yaml, started as deploy/README.md says. The judge is the log of the site, in its own container."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.error
import urllib.request

import pytest

from tests.patience import poll_until

from .stack import README_SITE, Stack, assert_complete, commands_of_readme

pytestmark = pytest.mark.timeout(900)
SERVER = "http://127.0.0.1:8420"
WORKERS = 4  # as in deploy/README.md
IN_FLIGHT = 2 * 4  # pages of a worker: crawl.concurrency of the project, and as many slow ones that stepped aside


def status_of(path: str, key: str = "") -> int:
    request = urllib.request.Request(SERVER + path, headers={"x-api-key": key} if key else {})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_the_commands_of_the_readme_lead_to_a_crawl(stack: Stack) -> None:
    stack.wait_healthy("valkey", "postgres", "s3", "scheduler", "server", "worker")
    assert len(stack.containers("worker_")) == WORKERS
    key = re.search(r"^gos_\S+", "\n".join(stack.told), re.M)
    assert key is not None
    assert (status_of("/readyz"), status_of("/api/v1/jobs"), status_of("/api/v1/jobs", key[0])) == (200, 401, 200)
    with stack.site(pages=300, delay=0.2, name=README_SITE) as site:
        stack.run(commands_of_readme()[-1])
        stack.wait_done(site)
        assert_complete(stack, site)
        assert site.twice() == {}
        assert len(site.workers()) > 1  # one worker paces a site; who is first takes it
    assert "All is well" in stack.gossamer("doctor")


def test_processes_may_do_little_and_no_password_is_in_an_environment(stack: Stack) -> None:
    secrets = [file.read_text().strip() for file in (stack.folder / "deploy" / "secrets").iterdir()]
    hidden = [text for text in secrets if len(text) >= 48 and " " not in text]
    assert len(hidden) >= 5
    for service in ("scheduler", "server", "worker"):
        container = stack.container(service)
        look = "id -u; env; touch /x; touch /opt/x; cat /proc/1/status"
        inside = stack.engine.podman("exec", container, "sh", "-c", look, bad=True)
        assert inside.startswith("10001\n")
        assert inside.count("Read-only file system") == 2
        assert re.search(r"^CapEff:\t0+$", inside, re.M)
        assert re.search(r"^NoNewPrivs:\t1$", inside, re.M)
        told = inside + stack.engine.podman("inspect", container) + stack.engine.podman("logs", container)
        assert [text for text in hidden if text in told] == []


def test_what_dies_comes_back_and_loses_nothing(stack: Stack) -> None:
    with stack.site(pages=600, delay=0.1) as site:
        stack.begin(site)
        for n, service in enumerate(("worker", "valkey", "postgres", "s3", "scheduler"), start=1):
            site.wait_for(60 * n)
            container = stack.container(service)
            before = stack.engine.state(container, ".State.StartedAt")
            stack.crash(container)
            poll_until(
                lambda c=container, b=before: (
                    stack.engine.state(c, ".State.StartedAt") != b  # type: ignore[misc]
                    and stack.engine.state(c, ".State.Running") == "true"
                ),
                f"{container} is restarted",
                every=0.5,
            )
        job = stack.wait_done(site)
        assert_complete(stack, site)
        assert (job["outcome"], job["counts"]["dead"]) == ("done", 0)
        # What the worker had on its way, and what all had while Valkey was away.
        assert len(site.twice()) <= IN_FLIGHT * (1 + WORKERS)


def test_health_turns_red_and_green_again(stack: Stack) -> None:
    worker = stack.container("worker")
    stack.wait_healthy("worker")
    processes = stack.processes(worker)
    assert len(processes) >= 2  # one that watches, and one that works
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        poll_until(lambda: not stack.is_healthy(worker), "a worker that hangs is unhealthy", every=2.0)
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)
    stack.wait_healthy("worker")
    stack.compose("stop valkey")
    poll_until(lambda: status_of("/readyz") == 503, "a server without its state is not ready", every=1.0)
    stack.compose("start valkey")
    poll_until(lambda: status_of("/readyz") == 200, "the server is ready again", every=1.0)


def test_a_worker_that_is_over_its_memory_limit_is_restarted_and_loses_nothing(stack: Stack) -> None:
    with stack.site(pages=200, heavy=100) as site:
        workers = stack.containers("worker_")
        assert {stack.engine.state(name, ".HostConfig.Memory") for name in workers} == {str(2**30)}
        stack.begin(site)
        job = stack.wait_done(site)
        assert_complete(stack, site)
        assert site.asked()["/p/100"] == 2
        assert job["counts"]["dead"] == 0
        assert len(site.twice()) <= IN_FLIGHT
        told = "".join(stack.engine.podman("logs", name) for name in workers)
        assert "SIGKILL" in told
        assert "/p/100" in told


def test_the_engines_stop_lets_pages_in_flight_finish(stack: Stack) -> None:
    with stack.site(pages=300, delay=1.0) as site:
        stack.begin(site)
        site.wait_for(60)
        workers = stack.containers("worker_")
        began = time.monotonic()
        stack.engine.podman("stop", "--time", "45", *workers)
        assert [stack.engine.state(name, ".State.ExitCode") for name in workers] == ["0"] * WORKERS
        assert time.monotonic() - began < 45
        asked = site.count()
        assert asked < site.pages
        stack.engine.podman("start", *workers)
        stack.wait_done(site)
        assert_complete(stack, site)
        assert site.twice() == {}


def test_a_newer_image_takes_over_in_the_middle_of_a_crawl(stack: Stack) -> None:
    old = stack.containers("worker_")
    with stack.site(pages=400, delay=0.5) as site:
        stack.compose("build --build-arg VERSION=0.1.1 worker")
        stack.begin(site)
        site.wait_for(50)
        stack.compose(f"up -d --no-deps --no-recreate --scale worker={2 * WORKERS} worker")
        new = [name for name in stack.containers("worker_") if name not in old]
        assert len(new) == WORKERS
        before, after = ({stack.engine.state(name, ".Image") for name in names} for names in (old, new))
        assert len(before) == len(after) == 1 != len(before & after)
        addresses = [{stack.address(name) for name in names} for names in (old, new)]
        site.wait_for(150)
        stack.engine.podman("stop", "--time", "45", *old)
        assert {stack.engine.state(name, ".State.ExitCode") for name in old} == {"0"}
        stack.wait_done(site)
        assert_complete(stack, site)
        assert site.twice() == {}
        assert all(site.workers() & those for those in addresses)  # both kinds had their share
    stack.engine.podman("rm", "--force", "--time", "45", *new)
    stack.engine.podman("start", *old)


def test_a_backup_of_one_stack_fills_another(stack: Stack) -> None:
    folder = stack.folder / "backups"
    folder.mkdir()
    os.chown(folder, 10001, 10001)
    stack.gossamer("backup /backups/all.backup", options=f"-v {folder}:/backups")
    jobs = {job["id"]: job["counts"] for job in json.loads(stack.ask("status --json"))}
    records = stack.ask("export -o - --format jsonl")
    other = Stack(stack.engine, "other")
    try:
        other.run("deploy/secrets.sh")
        other.compose("up -d valkey postgres s3")
        other.wait_healthy("valkey", "postgres", "s3")
        other.gossamer("restore /backups/all.backup", options=f"-v {folder}:/backups")
        told = other.gossamer("status --json")
        assert {job["id"]: job["counts"] for job in json.loads(told[told.index("[\n") :])} == jobs
        there = other.gossamer("export -o - --format jsonl")
        assert records_of(there) == records_of(records) != []
    finally:
        other.close()


def records_of(exported: str) -> list[str]:
    return sorted(line for line in exported.splitlines() if line.startswith("{"))
