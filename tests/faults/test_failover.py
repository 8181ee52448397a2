"""A store that was in use and refuses for a while is away: nothing ends because of it, and nothing is lost."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable

import pytest

from tests.faults.commands import CommandProject, is_alive, until
from tests.faults.fleet import Services, own_services
from tests.services.ports import free_port
from tests.services.seaweed import ACCESS_KEY, SECRET_KEY
from tests.services.valkey import PASSWORD
from tests.sites.running import park

pytestmark = pytest.mark.long

PAGES = 300
POLITENESS = '[politeness]\nrate = "unlimited"\nconcurrency = 16\n'


@pytest.fixture
def opened(tmp_path):
    projects: list[CommandProject] = []

    def make(seeds: list[str], settings: str) -> CommandProject:
        projects.append(CommandProject(tmp_path, seeds, settings))
        projects[-1].environ.update(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY)
        return projects[-1]

    yield make
    for project in projects:
        project.close()


def addresses(services: Services, *, state: str = "") -> str:
    return (
        f'project = "failover"\nstate = "{state or services.valkey.address()}"\n'
        f'records = "{services.postgres.address(user="crawler")}"\n'
        f'archive = "{services.s3.address("failover")}"\n{POLITENESS}'
    )


# -- how a store refuses, and how that ends ------------------------------------------------------------------------


def be_read_only(services: Services, project: CommandProject) -> Callable[[], None]:
    services.postgres.sql("ALTER ROLE crawler SET default_transaction_read_only = on", END_SESSIONS)
    return lambda: _sql(services, "ALTER ROLE crawler RESET default_transaction_read_only", END_SESSIONS)


def refuse_logins(services: Services, project: CommandProject) -> Callable[[], None]:
    services.postgres.sql("ALTER ROLE crawler NOLOGIN", END_SESSIONS)
    return lambda: _sql(services, "ALTER ROLE crawler LOGIN")


def be_a_replica(services: Services, project: CommandProject) -> Callable[[], None]:
    services.valkey.say("REPLICAOF", "127.0.0.1", "1")
    return lambda: _say(services, "REPLICAOF NO ONE")


def ask_for_a_password(services: Services, project: CommandProject) -> Callable[[], None]:
    _say(services, f"CONFIG SET requirepass {PASSWORD}", "CLIENT KILL TYPE normal")
    return lambda: _say(services, f"AUTH {PASSWORD}", 'CONFIG SET requirepass ""')


END_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'crawler'"


def _sql(services: Services, *statements: str) -> None:
    services.postgres.sql(*statements)


def _say(services: Services, *lines: str) -> None:
    """On one connection, which may log in."""
    with socket.create_connection(("127.0.0.1", services.valkey.port)) as line:
        for words in lines:
            line.sendall(f"{words}\r\n".encode())
            assert not line.recv(4096).startswith(b"-"), words


@pytest.mark.parametrize("refuse", [be_read_only, refuse_logins, be_a_replica, ask_for_a_password])
def test_a_child_that_dies_during_a_failover_is_replaced_and_the_others_go_on(refuse, s3, opened):
    with own_services(s3) as services, park(pages=PAGES, latency_ms=100, body_bytes=2000) as site:
        services.postgres.sql("CREATE ROLE crawler LOGIN SUPERUSER")
        project = opened(site.seeds(), addresses(services))
        project.sow(site)
        # given a scheduler and two workers at work
        up = project.run("up", "--workers", "2", "--no-server")
        fetched = len(site.hits())
        until(lambda: len(site.hits()) > fetched + 20 and len(up.children()) == 3, up)
        before = up.children()
        # when a store refuses, and one of them is killed meanwhile
        mend = refuse(services, project)
        victim = max(before)
        os.kill(victim, signal.SIGKILL)
        until(lambda: bool(up.children() - before), up)
        # then its successor waits, and so does a worker that is started now
        late = project.run("worker")
        until(lambda: "Waiting for it" in late.said() and "Waiting for it" in up.said(), up, late)
        assert late.process.poll() is None
        assert all(map(is_alive, before - {victim}))
        # and when the store is back, all is done
        mend()
        until(lambda: records_of(services) == len(site.truth()), up, late)
        assert before - {victim} < up.children()
        # and nobody waits any more
        until(lambda: sum(not one["missing"] for one in project.json("workers")) == 3, up, late)
        for command in (up, late):
            command.signal(signal.SIGTERM)
            assert command.ended() == 0, command.said()
        assert {hit.path for hit in site.hits()} == set(site.grounds.paths(site.hosts[0]))
        assert project.json("dead", "list")["dead_letters"] == []


def records_of(services: Services) -> int:
    [found] = services.postgres.sql("SELECT count(*) FROM gossamer_failover.records")
    return int(found)


def test_a_bucket_that_refuses_the_key_of_a_project_that_used_it_is_away(s3, opened):
    with own_services(s3) as services, park(pages=40, body_bytes=2000) as site:
        services.postgres.sql("CREATE ROLE crawler LOGIN SUPERUSER")
        project = opened(site.seeds(), addresses(services))
        project.sow(site)
        # when the key is refused to a worker that starts
        project.environ.update(AWS_SECRET_ACCESS_KEY="another")
        late = project.run("worker")
        # then it waits
        until(lambda: "Waiting for it" in late.said(), late)
        assert "counts as away" in late.said()
        late.signal(signal.SIGTERM)
        late.ended()


def test_a_worker_until_idle_waits_for_a_store_only_while_a_job_runs(s3, opened):
    with own_services(s3) as services, park(pages=40, body_bytes=2000) as site:
        services.postgres.sql("CREATE ROLE crawler LOGIN SUPERUSER")
        project = opened(site.seeds(), addresses(services))
        project.sow(site)
        # given a job that runs, and a worker to whom a store is away
        job = project.json("job", "list")[0]["id"]
        key = project.environ["AWS_SECRET_ACCESS_KEY"]
        project.environ["AWS_SECRET_ACCESS_KEY"] = "another"
        late = project.run("worker", "--until-idle", "--quiet")
        # then it waits, and says so
        until(lambda: "Waiting for it" in late.said(), late)
        assert late.process.poll() is None
        # and when the job has ended, there is nothing to wait for
        project.environ["AWS_SECRET_ACCESS_KEY"] = key
        project.done("job", "cancel", job)
        assert late.ended() == 0, late.said()
        assert "No job is left" in late.said()


def test_a_store_that_was_never_opened_is_a_wrong_setting(s3, opened):
    with own_services(s3) as services, park(pages=5) as site:
        _say(services, f"CONFIG SET requirepass {PASSWORD}")
        project = opened(site.seeds(), addresses(services, state=services.valkey.address(password="wrong")))
        services.postgres.sql("CREATE ROLE crawler LOGIN SUPERUSER")
        worker = project.run("worker", "--processes", "2")
        assert worker.ended() == 1
        assert "Fix the state address" in worker.said()
        assert "wrong" not in "".join(str(path) for path in project.folder.rglob("*"))


def test_a_crawl_waits_for_a_store_that_it_has_used_and_not_for_an_address_that_never_worked(s3, opened):
    with own_services(s3) as services, park(pages=20, body_bytes=2000) as site:
        services.postgres.sql("CREATE ROLE crawler LOGIN SUPERUSER")
        project = opened(site.seeds(), addresses(services))
        project.sow(site)
        for server in (services.valkey, services.postgres):
            # given a store that is down
            server.stop()
            # when a crawl is begun, then it waits, and says so
            crawl = project.run("crawl", "park")
            until(lambda crawl=crawl: "Waiting for it" in crawl.said(), crawl)
            assert crawl.process.poll() is None
            # and works to its end when the store is back
            server.start()
            assert crawl.ended() == 0, crawl.said()
        assert {hit.path for hit in site.hits()} == set(site.grounds.paths(site.hosts[0]))
        # but nobody waits for a typing error
        project.environ["GOSSAMER_STATE"] = f"redis://127.0.0.1:{free_port()}/0"
        crawl = project.run("crawl", "park")
        assert crawl.ended() == 1
        assert "Waiting" not in crawl.said()


# -- children ------------------------------------------------------------------------------------------------------


def test_a_port_for_metrics_that_is_taken_is_said_before_anything_starts(opened):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        project = opened([], POLITENESS)
        port = taken.getsockname()[1]
        for words in (("up", "--no-server", "--workers", "2"), ("worker", "--processes", "2")):
            command = project.run(*words, "--metrics-port", str(port))
            assert command.ended() == 1
            [line] = command.said().splitlines()
            assert "something else listens there" in line
        assert not (project.folder / "gossamer-data").exists()


def test_a_port_for_metrics_that_is_taken_later_stops_its_own_worker_only(opened):
    port = free_port()
    project = opened([], POLITENESS)
    up = project.run("up", "--no-server", "--workers", "2", "--metrics-port", str(port))
    until(lambda: len(up.children()) == 3 and listens(port) and listens(port + 1), up)
    before = up.children()
    first, second, third = sorted(before)
    # when a worker dies, and something else listens at its port
    os.kill(third, signal.SIGKILL)
    until(lambda: third not in up.children())
    with socket.create_server(("127.0.0.1", port + 1)):
        until(lambda: "cannot work with these settings; the others go on" in up.said(), up)
        assert {first, second} <= up.children()
    # then it works again as soon as the port is free
    until(lambda: listens(port + 1), up)
    assert {first, second} < up.children()
    up.signal(signal.SIGTERM)
    assert up.ended() == 0


def listens(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def test_a_crawl_whose_first_process_is_killed_before_it_began_goes_on(opened):
    with park(pages=30, body_bytes=2000) as site:
        project = opened(site.seeds(), POLITENESS)
        project.sow(site)  # an unfinished job, which --fresh replaces
        crawl = project.run("crawl", "park", "--processes", "3", "--fresh")
        until(lambda: len(crawl.children()) == 3, crawl)
        os.kill(min(crawl.children()), signal.SIGKILL)
        assert crawl.ended() == 0, crawl.said()
        assert "was ended by SIGKILL before it began to work. Another one starts." in crawl.said()
        assert "30 done" in crawl.said()
        assert [id for (id,) in project.sql("state.db", "SELECT id FROM jobs")] == ["park-1", "park-2"]
