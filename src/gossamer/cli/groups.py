"""Verbs with verbs below them. One is meant when none is named: `gossamer routes` is `gossamer routes show`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

SHOW = "show"


class ShowsByDefault(TyperGroup):
    """A group whose verb `show` may be left out. What looks like another verb is that verb."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: typer brings its own click in some versions
        if not args or (args[0] not in self.commands and args[0] not in self.get_help_option_names(ctx)):
            args = [SHOW, *args]
        return super().parse_args(ctx, args)
