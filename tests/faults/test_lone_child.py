"""One child that is watched: when a page has killed it, it is followed by another; one that has ended is not."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.faults.commands import children_of, is_alive, until
from tests.patience import PATIENCE

WATCHED = """
import ctypes, datetime, os, signal, sys, time
from gossamer.process.lone_child import run_watched
from gossamer.process.black_box import MARGIN, PARENT
def command():
    box = PARENT.box
    print("first" if not box.fate else box.fate, os.getpid(), flush=True)
    {body}
run_watched(command)
"""


def test_a_process_that_hangs_in_c_code_is_killed_and_followed_by_another():
    ended = run(
        WATCHED.format(
            body="""
    if not box.fate:
        box.begin(datetime.timedelta(seconds=1) - MARGIN)
        box.enter(b"http://a.example/1")
        ctypes.PyDLL(None).sleep(1000)  # and nobody else in this process may run
    sys.exit(7)
"""
        )
    )
    assert ended.returncode == 7, ended.stderr
    first, second = ended.stdout.splitlines()
    assert first.startswith("first ")
    assert second.startswith("The process did not respond and was killed in the code for http://a.example/1.")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("sys.exit(0)", 0),
        ("sys.exit(130)", 130),
        ("raise KeyError(1)", 1),
        ("os._exit(9)", 9),  # before any work was begun
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("box.begin(MARGIN); os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("box.begin(MARGIN); box.rest(); sys.exit(4)", 4),
    ],
)
def test_a_process_that_ends_or_never_began_is_not_followed(body, code):
    ended = run(WATCHED.format(body=body))
    assert ended.returncode == code
    assert len(ended.stdout.splitlines()) == 1


def test_deaths_that_no_page_explains_come_to_an_end():
    ended = run(WATCHED.format(body="box.begin(MARGIN); os._exit(3)"))
    assert ended.returncode == 3
    assert len(ended.stdout.splitlines()) == 4
    assert "died with exit code 3, 4 times in a row. No page is to blame." in ended.stderr


def test_a_child_dies_with_its_supervisor_and_gets_its_signals():
    body = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); print('ready', flush=True); time.sleep(60)"
    for number, code in ((signal.SIGTERM, 5), (signal.SIGKILL, -signal.SIGKILL)):
        with subprocess.Popen([sys.executable, "-c", WATCHED.format(body=body)], stdout=subprocess.PIPE) as parent:
            assert parent.stdout is not None
            parent.stdout.readline()
            assert parent.stdout.readline() == b"ready\n"
            [child] = children_of(parent.pid)
            parent.send_signal(number)
            assert parent.wait(PATIENCE) == code
            until(lambda child=child: not is_alive(child))


def test_a_child_that_was_forked_just_after_a_signal_still_heeds_the_next():
    program = """
import signal, sys
from gossamer.process import lone_child
fork = lone_child.fork
def fork_late(box, pipe):
    signal.raise_signal(signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # the child is to look before the signal ends it
    return fork(box, pipe)
lone_child.fork = fork_late
lone_child.run_watched(lambda: sys.exit(5 if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else 6))
"""
    ended = run(program)
    assert ended.returncode == 5, ended.stderr


def test_a_signal_that_came_during_the_fork_is_passed_on_once():
    """A second one would end a child that has just begun to drain."""
    program = """
import os, signal, sys, time
from gossamer.process import lone_child, supervisor
fork, pass_on = lone_child.fork, supervisor.Child.signal
def fork_signalled(box, pipe):
    started = fork(box, pipe)
    if started[0]:
        signal.raise_signal(signal.SIGTERM)  # it waits until the child is known
    return started
def pass_on_and_say(child, number):
    os.write(2, b"passed on\\n")
    pass_on(child, number)
lone_child.fork, supervisor.Child.signal = fork_signalled, pass_on_and_say
lone_child.run_watched(lambda: time.sleep(60))
"""
    ended = run(program)
    assert ended.returncode == -signal.SIGTERM, ended.stderr
    assert ended.stderr == "passed on\n"


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
