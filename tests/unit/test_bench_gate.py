"""The gate of `make bench-gate`: when it opens, and that its figures belong to the commands that it runs."""

from __future__ import annotations

import json
import re

import pytest
from bench import gate


def test_a_figure_may_rise_by_three_per_cent_and_no_more() -> None:
    kept = {"page": 1000, "--help": 1000}
    assert gate.excesses(kept, {"page": 1030, "--help": 900}) == []
    assert gate.excesses(kept, {"page": 1031, "--help": 900}) == ["page"]


def test_a_figure_that_was_never_kept_does_not_pass() -> None:
    assert gate.excesses({}, {"page": 1}) == ["page"]


def test_counts_of_another_interpreter_are_not_compared(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "interpreter", lambda: "another one")
    monkeypatch.setattr(gate.shutil, "which", lambda _: "/usr/bin/valgrind")
    monkeypatch.setattr(gate.sys, "argv", ["gate"])
    with pytest.raises(SystemExit, match=r"another one.*--keep"):
        gate.main()


def test_the_kept_figures_are_all_that_are_measured_and_name_no_path() -> None:
    kept = json.loads(gate.KEPT.read_text())
    assert set(kept["instructions"]) == {*gate.VERBS, "start of a crawl", "page"}
    assert "/" not in re.sub(r"\(.*?\)", "", kept["interpreter"])
