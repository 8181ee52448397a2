"""The rounds of `make storm`: what goes wrong while a job runs. storm.py judges what came of it.

What a round broke it mends itself. One that cannot be played on this machine raises Skipped.
"""

from __future__ import annotations

import glob
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from tests.faults.commands import children_of
from tests.services.cable import cable_to

from .storm_fleet import LEASE, LIMIT, WORKERS, Round


class Skipped(Exception):
    """The round cannot be played here, and why."""


def calm(run: Round) -> None:
    run.begin()


def workers_killed(run: Round) -> None:
    run.begin()
    for share in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        run.reached(share)
        run.kill_worker()


def supervisors_killed(run: Round) -> None:
    run.begin(1)
    command = ("worker", "--until-idle", "--processes", str(WORKERS - 1))
    run.crew.append(run.project.start(command=command))
    for share in (0.2, 0.4, 0.6, 0.8):
        run.reached(share)
        children = sorted(children_of(run.crew[1].pid))
        with run.fault("supervisor killed"):
            if share in (0.4, 0.8) and children:  # between, one of its children
                os.kill(run.chance.choice(children), signal.SIGKILL)
            else:
                run.crew[1].kill()
        if run.crew[1].code is not None:
            run.crew[1] = run.project.start(command=command)


def workers_stopped(run: Round) -> None:
    run.begin()
    for share in (0.2, 0.6):
        run.reached(share)
        run.stop_workers(2, LEASE + 3)


def valkey_killed(run: Round, policy: str) -> None:
    run.begin()
    for share in (0.2, 0.5, 0.8):
        run.reached(share)
        run.kill_valkey(1.0, policy)


def valkey_lost_its_last_second(run: Round) -> None:
    run.begin()
    for share in (0.2, 0.5, 0.8):
        run.reached(share)
        run.cut_power_of_valkey()


def postgres_stopped(run: Round) -> None:
    run.begin()
    run.reached(0.3)
    run.take_postgres(8.0, killed=False)
    run.reached(0.9)
    run.take_postgres(8.0, killed=False)


def postgres_killed(run: Round) -> None:
    run.begin()
    for share in (0.2, 0.6):
        run.reached(share)
        run.take_postgres(3.0, killed=True)


def s3_away(run: Round) -> None:
    """Until all pages were asked for, and a little longer: the job's end is near by then."""
    run.begin()
    run.reached(0.3)

    def back() -> None:
        run.asked(run.pages)
        time.sleep(4)

    run.take_s3(back)


def disk_full(run: Round) -> None:
    """The disk of all spools has 200 KB, and the records cannot be stored."""
    place = run.fleet.folder / "small-disk"
    place.mkdir(exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k,mode=0700", "tmpfs", str(place)], capture_output=True
    )
    if made.returncode:
        raise Skipped("only root can make a small disk")
    run.spools.append(place)
    try:
        run.project.set(GOSSAMER_STORE__SPOOL=str(place))
        run.begin()
        run.reached(0.3)
        run.take_postgres(10.0, killed=False)
        run.finish()
    finally:
        run.close()
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def leader_killed(run: Round) -> None:
    """A schedule begins the job; every scheduler is killed in turn before that moment, around it, and afterwards."""
    schedulers: list[subprocess.Popen[bytes]] = []

    def begin() -> None:
        with (run.fleet.folder / "schedulers.txt").open("ab") as log:
            schedulers.append(
                subprocess.Popen(
                    [sys.executable, "-m", "gossamer", "scheduler", "--quiet"],
                    cwd=run.fleet.folder, env=run.project.environment, stdin=subprocess.DEVNULL, stdout=log,
                    stderr=log,
                )
            )  # fmt: skip

    def kill(place: int) -> None:
        with run.fault("scheduler killed"):
            schedulers[place].kill()
            schedulers[place].wait()
        del schedulers[place]
        begin()

    try:
        for _ in range(3):
            begin()
        for _ in range(6):  # twelve seconds, in the middle of which the job is due
            time.sleep(2)
            kill(0)
        run.crew = [run.project.start(command=("worker",)) for _ in range(WORKERS)]
        run.asked(1)
        for share in (0.3, 0.5, 0.7):
            run.reached(share)
            kill(0)
        run.asked_for_all()
        time.sleep(5)
        for worker in run.crew:
            worker.signal(signal.SIGTERM)
        run.finish()
    finally:
        for scheduler in schedulers:
            scheduler.kill()
            scheduler.wait()


def cut_off_from_valkey(run: Round) -> None:
    with cable_to(run.fleet.valkey.port, run.fleet.papers.server) as cable:
        run.begin(WORKERS - 1)
        run.crew.append(run.project.start(GOSSAMER_STATE=run.fleet.state(cable)))
        run.reached(0.3)
        with run.fault("worker cut off from Valkey"):
            cable.freeze()
            time.sleep(LEASE + 5)
            cable.mend()
        run.finish()


def cut_off_from_postgres(run: Round) -> None:
    """One machine, with a spool of its own, cannot store anything until all others are done."""
    spool = run.fleet.folder / "spool-of-another-machine"
    run.spools.append(spool)
    with cable_to(run.fleet.postgres.port) as cable:
        records = run.fleet.postgres.address().replace(f":{run.fleet.postgres.port}/", f":{cable.port}/")
        run.begin(WORKERS - 1)
        other = run.project.start(GOSSAMER_RECORDS=records, GOSSAMER_STORE__SPOOL=str(spool))
        run.crew.append(other)
        run.reached(0.3)
        with run.fault("worker cut off from PostgreSQL"):
            cable.cut()
            run.asked(run.pages)
            time.sleep(8)
            cable.mend()
        run.finish()


def clocks_off(run: Round) -> None:
    run.begin(WORKERS, "clock:7", "clock:3600", "clock:-3600")  # an hour off: these take no work


def clock_months_ahead(run: Round) -> None:
    """For one machine every certificate is expired."""
    library = next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), "")
    if not library:
        raise Skipped("libfaketime is not installed")
    ahead = {"LD_PRELOAD": library, "FAKETIME": "+60d", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "MACHINE": "ahead"}
    run.begin(WORKERS - 1)
    run.built_in += 1
    run.crew.append(run.project.start(**ahead))


def power_cut(run: Round) -> None:
    run.begin()
    for share in (0.15, 0.35, 0.55, 0.75):
        run.reached(share)
        run.cut_power()


def failover(run: Round) -> None:
    run.begin(2)
    run.crew.append(run.project.start(command=("worker", "--until-idle", "--processes", "2")))
    deadline = time.monotonic() + LIMIT
    while len(children_of(run.crew[-1].pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    for share, store in ((0.2, "PostgreSQL"), (0.4, "Valkey"), (0.6, "PostgreSQL"), (0.8, "Valkey")):
        run.reached(share)
        run.refuse_writes(store, 10.0)


def out_of_memory(run: Round) -> None:
    run.begin()
    for share in (0.1, 0.4, 0.7):
        run.reached(share)
        run.fill_valkey(LEASE + 2)


def host_away(run: Round) -> None:
    run.begin()
    run.reached(0.2)
    run.take_host(40.0)


def all_at_random(run: Round) -> None:
    run.begin()
    ends = time.monotonic() + 45
    while time.monotonic() < ends and run.site.count() < 0.9 * run.pages:
        time.sleep(run.chance.uniform(0.5, 2))
        run.chance.choice(
            [
                run.kill_worker,
                run.kill_worker,
                lambda: run.stop_workers(1, LEASE + 2),
                lambda: run.kill_valkey(1.0),
                run.cut_power_of_valkey,
                run.cut_power,
                lambda: run.take_postgres(2.0, killed=True),
                lambda: run.take_s3(lambda: time.sleep(3)),
                lambda: run.take_host(5.0),
            ]
        )()


def due_soon() -> str:
    at = (datetime.now(UTC) + timedelta(seconds=7)).isoformat(timespec="seconds")
    return f'[schedules.park]\nspider = "park"\nat = "{at}"\n'


ROUNDS: dict[str, Callable[[Round], None]] = {
    "calm": calm,
    "workers killed": workers_killed,
    "supervisors killed": supervisors_killed,
    "workers stopped": workers_stopped,
    "Valkey killed, everysec": partial(valkey_killed, policy="everysec"),
    "Valkey killed, always": partial(valkey_killed, policy="always"),
    "Valkey's last second lost": valkey_lost_its_last_second,
    "PostgreSQL stopped": postgres_stopped,
    "PostgreSQL killed": postgres_killed,
    "S3 away": s3_away,
    "spool's disk full": disk_full,
    "schedulers killed": leader_killed,
    "cut off from Valkey": cut_off_from_valkey,
    "cut off from PostgreSQL": cut_off_from_postgres,
    "clocks off": clocks_off,
    "a clock two months ahead": clock_months_ahead,
    "power cut with POSTs": power_cut,
    "power cut with POSTs, SQLite": power_cut,
    "read-only failover": failover,
    "Valkey out of memory": out_of_memory,
    "a host away": host_away,
    "all at random": all_at_random,
}
