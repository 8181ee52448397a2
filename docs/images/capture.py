"""Make the pictures of this folder: the real commands in a real terminal (tmux), its screen written as SVG.

    python docs/images/capture.py          # needs tmux, and gossamer on the PATH

Nothing is drawn by hand: what the terminal showed, colours included, is what the picture shows. No font and no
script is loaded from anywhere when somebody looks at it.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

HERE = Path(__file__).resolve().parent
COLUMNS, ROWS = 104, 34
PROMPT = "$ "
PATIENCE = 120.0  # seconds for one command

PICTURES = {
    "demo.svg": ["gossamer demo"],
    "why.svg": ["gossamer why http://shop.localhost:8460/product/slate-opal-glass-lantern-lit-033"],
}

THEME = TerminalTheme(
    (22, 27, 34),
    (201, 209, 217),
    [(72, 79, 88), (255, 123, 114), (126, 211, 133), (227, 179, 65), (121, 174, 255), (210, 168, 255), (86, 212, 221),
     (177, 186, 196)],
    [(110, 118, 129), (255, 161, 152), (126, 211, 133), (227, 179, 65), (121, 174, 255), (210, 168, 255),
     (86, 212, 221), (240, 246, 252)],
)  # fmt: skip

# As rich's own, without its web font, so that the picture needs no other server.
FRAME = """\
<svg class="rich-terminal" xml:space="preserve" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font: bold 16px ui-sans-serif, "DejaVu Sans", Arial, sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class Terminal:
    """A terminal of fixed size with a plain shell in it, under a tmux server of its own."""

    def __init__(self, folder: str) -> None:
        self._name = f"gossamer-pictures-{os.getpid()}"
        shell = f"env PS1='{PROMPT}' TERM=xterm-256color sh"
        self._tmux("new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "-c", folder, shell)

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(  # noqa: S603 - our own words
            ["tmux", "-L", self._name, "-f", os.devnull, *words],  # noqa: S607 - whichever tmux there is
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    def type(self, command: str) -> None:
        """Type a command and wait until the prompt is back."""
        self._tmux("send-keys", "-l", command)
        self._tmux("send-keys", "Enter")
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            time.sleep(0.3)
            if self.screen(colours=False)[-1:] == [PROMPT.strip()]:
                return
        raise TimeoutError(f"{command} did not end.")

    def screen(self, *, colours: bool) -> list[str]:
        text = self._tmux("capture-pane", "-p", *(("-e",) if colours else ()))
        return text.rstrip().splitlines()

    def clear(self) -> None:
        self.type("clear")

    def close(self) -> None:
        self._tmux("kill-server")


def draw(lines: list[str], title: str, file: Path) -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)
    svg = console.export_svg(title=title, theme=THEME, code_format=FRAME, unique_id=file.stem)
    file.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        terminal = Terminal(folder)
        try:
            for name, commands in PICTURES.items():
                terminal.clear()
                for command in commands:
                    terminal.type(command)
                draw(terminal.screen(colours=True)[:-1], commands[0].split(" http")[0], HERE / name)
                print(f"{name} drawn")
        finally:
            terminal.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
