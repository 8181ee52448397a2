"""`gossamer mcp`: the project for an agent that speaks the Model Context Protocol, over stdin and stdout."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Annotated, Any

import typer
from rich.text import Text

from ..errors import MissingExtra
from ..settings import Settings
from .app import app, err, settings_with
from .layout import print_json
from .worker import COMMAND

JOIN_SECONDS = 5.0  # for the last answer, when a signal ends the process
CONFIG_WORDS = (
    "Paste it into the file in which your client lists MCP servers (`mcpServers`). A server that runs elsewhere "
    "(`gossamer serve`) is reached at its address with /mcp, and a key as `Authorization: Bearer`."
)


@app.command("mcp")
def mcp_verb(
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Start no worker here: others do the fetching.")
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the snippet for an agent's settings, and exit.")
    ] = False,
) -> None:
    """Let an agent use the project over stdin and stdout (MCP). A worker runs beside it until the agent leaves."""
    settings = settings_with()
    if print_config:
        print_json(_client_config(settings))
        err.print(Text(CONFIG_WORDS, style="dim"))
        return
    try:
        from ..server.mcp_app import serve_agent
    except ModuleNotFoundError as error:
        raise MissingExtra("MCP is not installed: pip install 'gossamer[mcp]'") from error
    from ..project.workers import service

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if no_worker:
        asyncio.run(serve_agent(settings, tell=tell))
        return
    # The supervisor handles signals, so it needs the main thread. Its worker starts once stdout is the agent's alone.
    supervisor = service.supervised_worker(settings, [*COMMAND, "worker", "--quiet"], tell=tell)
    ready, failures = threading.Event(), list[BaseException]()

    def answer() -> None:
        try:
            asyncio.run(serve_agent(settings, tell=tell, ready=ready.set))
        except BaseException as error:  # on any error: the process must not outlive its agent
            failures.append(error)
        finally:
            supervisor.stop()
            ready.set()

    serving = threading.Thread(target=answer, name="mcp", daemon=True)
    serving.start()
    ready.wait()
    code = supervisor.run()
    serving.join(JOIN_SECONDS)
    for failure in failures:
        raise failure
    if code:
        raise typer.Exit(code)


def _client_config(settings: Settings) -> dict[str, Any]:
    """The entry for the settings of common clients. The folder identifies the project."""
    arguments = ["-P", "-m", "gossamer", "mcp"]
    return {"mcpServers": {"gossamer": {"command": sys.executable, "args": arguments, "cwd": str(settings.root)}}}
