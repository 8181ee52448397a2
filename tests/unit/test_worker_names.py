"""Whether a worker is gone is said only when it is certain."""

from __future__ import annotations

import os
import subprocess
import sys

from gossamer.backends.worker_names import is_gone, numbered_name, worker_name

NAME = "from gossamer.backends.worker_names import worker_name; print(worker_name())"


def test_a_process_that_has_ended_is_gone_and_a_living_one_is_not():
    ended = subprocess.run([sys.executable, "-c", NAME], capture_output=True, text=True, check=True).stdout.strip()
    assert is_gone(ended)
    assert is_gone(numbered_name(ended, 2))
    assert not is_gone(worker_name())
    assert not is_gone(numbered_name(worker_name(), 3))


def test_a_process_id_that_was_given_again_is_somebody_else():
    host, pid, rest = worker_name().split("/")
    born, _, world = rest.partition("-")
    assert is_gone(f"{host}/{pid}/{int(born) - 1}-{world}")


def test_another_machine_or_container_of_the_same_name_is_left_alone():
    host, _, rest = worker_name().split("/")
    born = rest.partition("-")[0]
    assert not is_gone(f"{host}/999999/{born}-0badcafe")
    assert not is_gone(f"elsewhere/{os.getpid()}/{rest}")
    assert not is_gone("nonsense")
