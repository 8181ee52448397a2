"""Schemathesis reads the OpenAPI document of a running server, and asks whatever follows from it, right and wrong."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.faults.commands import CommandProject, until

ROOT = Path(__file__).resolve().parents[2]
TOOL = shutil.which("schemathesis", path=f"{ROOT / '.venv-tools' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}")
EXAMPLES = os.environ.get("FUZZ_EXAMPLES", "10")  # of each endpoint
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,negative_data_rejection,unsupported_method,ignored_auth"
)
SETTINGS = """
[server]
port = {port}
rate = "unlimited"
open_jobs = 100000
"""


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.skipif(TOOL is None, reason="no schemathesis: `make fuzz-api` installs it into .venv-tools")
def test_the_server_does_what_its_document_says(tmp_path: Path) -> None:
    """Without a worker, so that nothing is fetched; `/scrape` would answer 503 for want of one, and is left out: the
    body of `/scrape/async` is the same."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    project = CommandProject(tmp_path / "p", [], SETTINGS.format(port=port))
    try:
        key = project.json("keys", "add", "fuzz", "--scopes", "scrape,jobs,records,metrics,admin")["key"]
        server = project.run("serve")
        until(lambda: _answers(port), server)
        assert TOOL is not None
        done = subprocess.run(
            [
                TOOL, "run", f"http://127.0.0.1:{port}/openapi.json", "-H", f"x-api-key: {key}", "--seed", "7",
                "--exclude-path", "/api/v1/scrape", "--phases", "examples,fuzzing", "--max-examples", EXAMPLES,
                "--checks", CHECKS, "--continue-on-failure", "--no-shrink", "--request-timeout", "60",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )  # fmt: skip
        said = server.said()
    finally:
        project.close()

    assert done.returncode == 0, done.stdout[-6000:]
    assert "Traceback" not in said
