"""Failures of pages, grouped by what they say: 200 pages that failed for one reason are one group. Pure.

Two messages belong together if they differ in values only: URLs, quoted texts, numbers and ids are folded. A group has
its count, the field, file and line it is about where they are known, an example, and the command that shows it.

Messages come from web sites and from the code of users. Only the ends of a long one are read, each pattern looks at a
bounded number of characters, and a bounded number of groups is kept: the cost does not depend on what they say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import Protocol, TypeAlias

import msgspec

from ..units import many
from .outcome import NOT_FOUND

FOLDED = "…"  # stands for a value
LONGEST_MESSAGE = 600  # characters that are compared and shown; of a longer message, both ends
LONGEST_WORDS = 300  # characters of a message inside a sentence
LONGEST_TEXT = 20_000  # characters searched for a file and a line, from the end
MOST_GROUPS = 1_000  # failures beyond these are counted as others
LARGEST = 3  # groups that a summary shows
EXAMPLES = 3  # pages shown of a group

_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s'\"<>]{1,600}")
_PLACE = re.compile(r" ?\(([^()\s,]{1,120}), line (\d{1,7})\)\s{0,3}$")
_FRAME = re.compile(r'File "([^"\n]{1,400})", line (\d{1,7})')
_WRONG_VALUE = re.compile(r" but is .{1,64}? \((?=expected|invalid|object|number)")
_QUOTED = re.compile(r"""(?<!\w)(['"`])(.{0,300}?)\1(?!\w)""")
_NAME = re.compile(r"[A-Za-z_][A-Za-z_.]{0,40}")
_NAMES_MATTER = re.compile(r"\b(?:Key|Attribute|Name|UnboundLocal|Type|Import|ModuleNotFound)Error\b")
_ID = re.compile(r"\b(?:0x[0-9a-fA-F]{1,40}|(?=[0-9a-fA-F]{0,40}\d)[0-9a-fA-F]{8,40}(?:-[0-9a-fA-F]{1,40}){0,4})\b")
_NUMBER = re.compile(r"(?<!answered )(?<![\w.])[-+]?\d(?:[\d.,:_]{0,40}\d)?")
_REPEATED = re.compile(rf"['\"`]?{FOLDED}['\"`]?(?:,? ['\"`]?{FOLDED}['\"`]?)+")
_FIELD = re.compile(r": ([A-Za-z_][\w.\[\]]{0,100}) (?:should be |is missing \(|is empty, but it is)")
_INDEX = re.compile(r"\[\d{0,20}\]")


_Key: TypeAlias = tuple[str, str, str | None, int | None]  # reason, pattern, file, line


class Failed(Protocol):
    """A page that failed: a dead letter."""

    @property
    def id(self) -> int: ...
    @property
    def job(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...


class FailureExample(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a group: the job that gave it up, and its id there."""

    job: str
    id: int
    url: str


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Pages that failed alike. `message` and `url` are those of the latest of them. `key` names the group in commands
    and calls; it is the same wherever the same message comes from."""

    key: str
    count: int
    reason: str
    message: str  # without the URL of the page
    pattern: str  # the message with its values folded
    field: str | None = None  # of the item
    file: str | None = None  # of the code that failed, and the line in it
    line: int | None = None
    url: str
    command: str  # shows the example in full, with its traceback
    examples: list[FailureExample] = []  # the latest EXAMPLES of them

    @property
    def in_words(self) -> str:
        """The message, with the place in the code unless it is named there."""
        words = without_middle(self.message, LONGEST_WORDS)
        if self.file is None or (self.file in words and str(self.line) in words):
            return words
        return f"{words} ({self.file}, line {self.line})"


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """The largest groups of failures. `looked_at` are the latest of the `total`, and were grouped; `others` of them are
    in smaller groups."""

    total: int
    looked_at: int
    others: int
    groups: list[FailureGroup]

    @property
    def of_all(self) -> str:
        """What the counts are a part of, in words: "of 200", "of the latest 1,000 of 52,311"."""
        if self.looked_at >= self.total:
            return f"of {self.total:,}"
        return f"of the latest {self.looked_at:,} of {self.total:,}"

    @property
    def of_letters(self) -> str:
        return f"{self.of_all} dead {'letter' if self.total == 1 else 'letters'}"

    @property
    def largest_in_words(self) -> str:
        """The largest group in a clause: "198 of 200 dead letters say: ..."; "" if there is none. Pages that do not
        exist are only named where nothing else failed: every site links to some. It is kept and sent to people, and
        quotes nothing of a page: it may be about a person, and is to be erased with the page."""
        if not self.groups:
            return ""
        first = next((one for one in self.groups if one.reason not in NOT_FOUND), self.groups[0])
        verb = "say" if first.count > 1 else "says"
        told = msgspec.structs.replace(first, message=_without_values(first.message))
        return f"{first.count:,} {self.of_letters} {verb}: {told.in_words.removesuffix('.')}"

    @property
    def others_in_words(self) -> str:
        """How many are in smaller groups; "" if none is."""
        return f"{many(self.others, 'page')} failed for other reasons" if self.others else ""


def group_failures(failures: Iterable[Failed], *, total: int | None = None, largest: int = LARGEST) -> Failures:
    """Group these failures, which come latest first; `total` is how many there are in all, if not all are given.

    Example: `group_failures(letters).groups[0].count`.
    """
    counts: Counter[_Key] = Counter()
    examples: dict[_Key, list[Failed]] = {}
    looked_at = 0
    for failed in failures:
        looked_at += 1
        key = _key_of(failed)
        if key in examples or len(examples) < MOST_GROUPS:
            known = examples.setdefault(key, [])
            if len(known) < EXAMPLES:
                known.append(failed)
            counts[key] += 1
    ranked = sorted(counts.items(), key=lambda one: (-one[1], one[0][:2]))[:largest]
    found = [_group(key, count, examples[key]) for key, count in ranked]
    return Failures(
        total=looked_at if total is None else max(total, looked_at),
        looked_at=looked_at,
        others=looked_at - sum(one.count for one in found),
        groups=found,
    )


def group_of(failed: Failed) -> str:
    """The key of the group to which it belongs."""
    return _name(_key_of(failed))


def _key_of(failed: Failed) -> _Key:
    return failed.reason, fold(failed.message, failed.url), *place_of(failed.message)


def _name(key: _Key) -> str:
    return blake2b("\0".join(map(str, key)).encode("utf-8", "backslashreplace"), digest_size=4).hexdigest()


def _group(key: _Key, count: int, some: list[Failed]) -> FailureGroup:
    reason, pattern, file, line = key
    example = some[0]
    words = short_message(example.message, example.url)
    return FailureGroup(
        key=_name(key),
        examples=[FailureExample(job=one.job, id=one.id, url=one.url) for one in some],
        count=count,
        reason=reason,
        message=words,
        pattern=pattern,
        field=_field_in(words),
        file=file,
        line=line,
        url=example.url,
        command=f"gossamer dead show {example.id}",
    )


def fold(message: str, url: str = "") -> str:
    """The first line of a message with its values folded: equal for messages that differ in values only."""
    text, place = short_message(message, url), ""
    if (found := _PLACE.search(text)) is not None:
        text, place = text[: found.start()], f" ({found[1]}, line {found[2]})"
    text = _URL.sub(lambda found: "URL" + found[0][len(found[0].rstrip(":.,;)]}")) :], text)
    text = _NUMBER.sub(FOLDED, _ID.sub(FOLDED, _without_values(text)))
    return _REPEATED.sub(FOLDED, text) + place


def _without_values(text: str) -> str:
    """A message with quoted texts and wrong values folded."""
    text = _WRONG_VALUE.sub(f" but is {FOLDED} (", text)
    keeps_names = _NAMES_MATTER.search(text) is not None
    return _QUOTED.sub(lambda found: found[0] if keeps_names and _NAME.fullmatch(found[2]) else FOLDED, text)


def short_message(message: str, url: str = "") -> str:
    """The first line of a message, without the page's own URL; of a long one the middle is left out, never the end."""
    first = message[: 10 * LONGEST_TEXT].lstrip().partition("\n")[0].rstrip()
    if url:
        first = first.replace(f" on {url}", "").removeprefix(f"{url}: ").replace(f"{url} ", "")
    return without_middle(first, LONGEST_MESSAGE)


def without_middle(text: str, longest: int) -> str:
    """At most `longest` characters: of a longer text a third from its beginning, and the rest from its end."""
    if len(text) <= longest:
        return text
    begin = longest // 3
    return f"{text[:begin]} {FOLDED} {text[len(text) - (longest - begin - 3) :]}"


def place_of(message: str) -> tuple[str | None, int | None]:
    """The file and the line of the code that failed, if the message or its traceback names them."""
    found = _PLACE.search(without_middle(message.partition("\n")[0].rstrip(), LONGEST_MESSAGE))
    if found is None:
        frames = _FRAME.findall(message[-LONGEST_TEXT:])
        if not frames:
            return None, None
        return re.split(r"[\\/]", frames[-1][0])[-1][:120], int(frames[-1][1])
    return found[1], int(found[2])


def _field_in(words: str) -> str | None:
    found = _FIELD.search(words)
    return _INDEX.sub("", found[1]) if found is not None else None
