"""Words without secrets. An address may hold a user name and a password, which are sent to its site and shown to
nobody: not in lists, not in messages, not in the ending of a job. The words of a command may hold them anywhere."""

from __future__ import annotations

import re

HIDDEN = "***"

_LOGIN = re.compile(r"(//)([^/?#\s:@]*+)(:?+)[^/?#\s]*@")
_NAME = re.compile(r"\s*([\w./+-]+)(?=[\s;|]|$)")


def discreet(text: str) -> str:
    """The text with `user:***@` for the login of every address in it. A name alone is hidden too: it may be a key."""
    return _LOGIN.sub(_hidden, text)


def program(argv: tuple[str, ...]) -> str:
    """A command by its first word, on one line: the others are nobody's business."""
    name = "".join(sign if sign.isprintable() else "?" for sign in argv[0])
    return name if len(name) <= 100 else f"{name[:97]}..."


def shell_program(script: str) -> str:
    """The first word of what a shell reads; "" where that is more than the name of a program: `KEY=hunter2 list`."""
    found = _NAME.match(script)
    return "" if found is None else program((found[1],))


def _hidden(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}:{HIDDEN}@" if found[3] else f"{found[1]}{HIDDEN}@"
