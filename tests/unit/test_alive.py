"""The file that tells probes that a process lives."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.errors import Misconfigured
from gossamer.process import pulse
from gossamer.project.workers.service import touching_alive_file
from gossamer.settings import load
from tests.patience import until


async def test_the_file_grows_young_again_while_the_loop_turns_and_goes_with_the_process(tmp_path, monkeypatch):
    monkeypatch.setattr(pulse, "TOUCH", pulse.TOUCH / 500)
    file = tmp_path / "alive"
    settings = load(start=tmp_path, environ={"GOSSAMER_FLEET__ALIVE": str(file)})
    async with touching_alive_file(settings):
        first = file.stat().st_mtime_ns
        await until(lambda: file.stat().st_mtime_ns != first)
    assert not file.exists()


async def test_without_the_setting_nothing_is_written(tmp_path):
    async with touching_alive_file(load(start=tmp_path, environ={})):
        assert list(tmp_path.iterdir()) == []


async def test_a_file_that_cannot_be_written_is_told_with_the_next_step(tmp_path):
    settings = load(start=tmp_path, environ={"GOSSAMER_FLEET__ALIVE": str(Path("/proc/nowhere/alive"))})
    with pytest.raises(Misconfigured, match=r"/proc/nowhere/alive cannot be written.*fleet\.alive"):
        async with touching_alive_file(settings):
            pass
