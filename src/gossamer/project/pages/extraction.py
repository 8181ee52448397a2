"""A client's extraction rules (`extract`): checked, and applied to pages, in child processes (page_children.py).

What it does: a stranger's rule may backtrack or multiply without end, in code that no timer can interrupt and that
blocks all other threads. So the server neither compiles nor applies such rules; a child does, within LIMIT.
How it fails: BadRules, ParseFailed, KeyBusy, ServerBusy. How it recovers: rules that took too long are refused for a
while without a try, so that they delay others only briefly.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import Any

import msgspec

from ...clock import Clock
from ...errors import ParseFailed
from ...model.page import Snapshot
from ...recipe.fields import BadRules
from .page_child import CheckRules, ExtractValues, PageAnswer
from .page_children import PageChild, PageChildren

LIMIT = 10.0  # seconds for the rules of one page
REFUSED_FOR = 60.0  # seconds, for rules that took too long
REMEMBERED = 1000  # rules remembered as checked, or as too slow

Rules = dict[str, Any]  # the fields of a recipe, as JSON


class Extraction:
    """Applies rules, and remembers which were good and which were too slow."""

    def __init__(self, clock: Clock, children: PageChildren) -> None:
        self._clock = clock
        self._children = children
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self._slow: OrderedDict[bytes, float] = OrderedDict()  # until when they are refused

    async def check(self, rules: Rules, key: str) -> None:
        """Check rules for the key with that id. Raises BadRules, KeyBusy, ServerBusy."""
        text = msgspec.json.encode(rules)
        digest = _digest(text)
        if digest in self._good:
            return
        answer = self._refusal(digest)
        if answer is None:
            async with self._children.turn(key) as child:
                answer = self._judged(digest, await child.ask(CheckRules(text), None, LIMIT))
        if answer.fault or answer.failure:
            raise BadRules(answer.fault or answer.failure)
        self._good[digest] = None
        while len(self._good) > REMEMBERED:
            self._good.popitem(last=False)

    async def extract(self, rules: Rules, page: Snapshot, child: PageChild) -> Any:
        """The values of the fields, by name, as plain JSON. Raises BadRules, ParseFailed."""
        text = msgspec.json.encode(rules)
        digest = _digest(text)
        answer = self._refusal(digest) or self._judged(digest, await child.ask(ExtractValues(text), page, LIMIT))
        if answer.fault:
            raise BadRules(answer.fault)
        if answer.failure:
            raise ParseFailed(answer.failure)
        return answer.content

    def _refusal(self, digest: bytes) -> PageAnswer | None:
        now = self._clock.monotonic()
        if self._slow.get(digest, now) <= now:
            return None
        return PageAnswer(failure=f"These rules recently took longer than {LIMIT:g} s on a page. Make them simpler.")

    def _judged(self, digest: bytes, answer: PageAnswer | None) -> PageAnswer:
        if answer is not None:
            return answer
        self._slow[digest] = self._clock.monotonic() + REFUSED_FOR
        while len(self._slow) > REMEMBERED:
            self._slow.popitem(last=False)
        return PageAnswer(failure=f"The rules took longer than {LIMIT:g} s, or too much memory. Make them simpler.")


def _digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=16).digest()
