"""Learns the rules of one recipe again, in a process of its own: started by the leading
scheduler, or for a person who asks a server (learner.py).

What it does: what `gossamer heal SPIDER` does, keeps the result as a layout change in the state, and in mode "auto"
takes sure rules into use and parses the changed pages again. It makes no request. How it fails: it prints one sentence
and ends with exit code 1; memory is limited here, time by whoever started it. How it recovers: the scheduler tries
again when more pages fail.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

import msgspec

from ...errors import GossamerError, Misconfigured
from ...parse.discovery import load_spider, made_spider
from ...process.supervisor import PR_SET_PDEATHSIG
from ...recipe.spider import RecipeSpider
from ...settings import Settings
from ...settings import load as load_settings
from ..open import open_crawled
from .apply import apply, settle_letters
from .heal import chosen_fields, find_healing
from .layout_change import change_of, put_layout_change, unasked_fields
from .learner import CHOSEN, SURE, LearnOrder

MEMORY = 2 * 1024**3  # bytes
NICE = 10


async def learn(settings: Settings, order: LearnOrder) -> None:
    """Learn, keep what was found, and apply what is to be applied. Raises Misconfigured, BackendUnavailable."""
    spider = made_spider(load_spider(order.spider, settings.root, settings.spiders))
    if not isinstance(spider, RecipeSpider):
        if order.apply == CHOSEN:
            raise Misconfigured(f"{spider.name} is a spider in Python; only rules of recipes are learned again.")
        return
    async with open_crawled(settings) as project:
        healing = await find_healing(project, spider)
        if not healing.kinds:
            if healing.rules:  # pages that were parsed by the rules before
                await settle_letters(project, spider.name)
            if order.apply == CHOSEN:
                raise Misconfigured(healing.words())
            return
        fields = unasked_fields(settings, healing) if order.apply == SURE else []
        if order.apply == CHOSEN:
            fields = chosen_fields(healing, order.fields)
        if not fields:
            await put_layout_change(project, await change_of(project, healing, order.job, order.letters))
            if order.apply == CHOSEN:
                raise Misconfigured("No rule is sure. Name the fields whose rules are only proposed.")
            return
    await apply(settings, spider, healing, fields, by=order.by, job=order.job, letters=order.letters)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the scheduler
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.nice(NICE)
    order = msgspec.json.decode(sys.argv[1], type=LearnOrder)
    try:
        asyncio.run(learn(load_settings(start=Path.cwd()), order))
    except (GossamerError, MemoryError) as error:
        sys.exit(" ".join(str(error).split()) or type(error).__name__)


if __name__ == "__main__":
    main()
