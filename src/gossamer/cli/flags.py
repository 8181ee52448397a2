"""What is said about the keys of a schedule's table, said about the flags of `gossamer schedule add`.

A schedule is refused with the words of gossamer.toml: `min_interval: goes with a budget only`. Who typed flags reads
`--min-interval` instead. What stands in quotes is what somebody wrote, and stays as it is.
"""

from __future__ import annotations

import re
import shlex

from ..settings import ScheduleTable

_OTHERS = {"urls": "--url", "windows": "--window"}
FLAGS = {key: _OTHERS.get(key, f"--{key.replace('_', '-')}") for key in ScheduleTable.__struct_fields__}

_KEY = "|".join(sorted(FLAGS, key=len, reverse=True))
_EXAMPLE = re.compile(rf'\b({_KEY}) = (?:"([^"]*)"|(\[[^\]]*\])|(\w+))')
_LONG_KEY = re.compile(rf"(?<![\w-])({'|'.join(key for key in FLAGS if '_' in key)})\b")
_SUBJECT = re.compile(rf"(?:^|(?<=: ))({_KEY})(?=: |, | is | has | with | says | does )")
_LIST = re.compile(r"(?:it has|one of|only with|go with) [a-z_, ]+(?: and [a-z_]+)?")
_WORD = re.compile(rf"(?<!-)\b({_KEY})\b")
_QUOTED = re.compile(r"('(?:[^'\\]|\\.)*')")


def in_flags(message: str) -> str:
    """The message, for somebody who typed flags."""
    examples = _EXAMPLE.sub(_flag, message)
    parts = _QUOTED.split(examples)
    return "".join(part if at % 2 else _translated(part) for at, part in enumerate(parts))


def _flag(found: re.Match[str]) -> str:
    key, text, words, bare = found.groups()
    flag = FLAGS[key]
    if words is not None:
        listed = re.findall(r'"([^"]*)"', words)
        return f'{flag} "{" ".join(listed)}"' if key == "command" else " ".join(f"{flag} '{one}'" for one in listed)
    if bare is not None:
        return flag if bare == "true" else f"{flag} {bare}"
    return f"{flag} {shlex.quote(text)}" if text.isascii() and "'" not in text else f'{flag} "{text}"'


def _translated(part: str) -> str:
    part = _LONG_KEY.sub(lambda found: FLAGS[found[1]], part)
    part = _SUBJECT.sub(lambda found: FLAGS[found[1]], part)
    # The spider's own start is what comes without a flag.
    return _LIST.sub(lambda found: _WORD.sub(lambda word: FLAGS[word[1]], found[0]).removesuffix(", --start"), part)
