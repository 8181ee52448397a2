"""A child process that reads pages for clients: formats, rules of `extract`, links, records.

What it does: takes one order at a time from its standard input and answers on its standard output. Pages and rules come
from strangers and may take for ever, in code that no timer can interrupt, or fill the memory. So the child has neither
the project nor its settings and secrets, a bounded memory, and a time for each order; page_children.py kills it if it
says nothing. How it fails: an order that takes too long or too much memory gets an empty answer.
"""

from __future__ import annotations

import ctypes
import difflib
import json
import os
import resource
import signal
import struct
import sys
from types import FrameType
from typing import Any, BinaryIO

import msgspec

from ...errors import GossamerError
from ...model.healing import RulesVersion
from ...model.page import Headers, Snapshot
from ...parse.page import Page
from ...parse.site import PartTerms, description_of
from ...process.supervisor import PR_SET_PDEATHSIG
from ...recipe.fields import BadRules, extract, read_rules
from ...units import many
from .formats import WantedFormats, formatted
from .links import WantedLinks, links_in

MEMORY = 2 * 1024**3  # bytes per child
HEAD = struct.Struct("<I")


class CheckRules(msgspec.Struct, frozen=True, tag="check"):
    """Are these rules valid?"""

    rules: bytes


class ExtractValues(msgspec.Struct, frozen=True, tag="extract"):
    """The values of the fields, by name."""

    rules: bytes


class FormatPage(msgspec.Struct, frozen=True, tag="formats"):
    """The page in each of the formats, by name."""

    wanted: WantedFormats


class ListLinks(msgspec.Struct, frozen=True, tag="links"):
    """The addresses in a page or sitemap: `FoundLinks`."""

    wanted: WantedLinks


class DescribePage(msgspec.Struct, frozen=True, tag="describe"):
    """The record of the page and its links: `Description`."""

    terms: PartTerms | None = None  # of a crawl of a part of a site


class CompareTexts(msgspec.Struct, frozen=True, tag="compare"):
    """The lines that differ, as a unified diff."""

    before: str
    after: str


class SentPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page as bytes."""

    url: str = ""
    requested_url: str = ""
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    fetched_at: float = 0.0
    cut: bool = False

    @property
    def page(self) -> Page:
        return Page(
            Snapshot(
                url=self.url,
                requested_url=self.requested_url,
                status=self.status,
                headers=Headers(self.headers),
                body=self.body,
                fetched_at=self.fetched_at,
                cut=self.cut,
            )
        )


class PageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`values` is plain JSON; `text` is the same as a text, if MessagePack cannot hold it: long integers, half
    characters."""

    values: Any = None
    text: str = ""
    fault: str = ""  # of the rules
    failure: str = ""  # of the page

    @property
    def content(self) -> Any:
        return json.loads(self.text) if self.text else self.values


class OutlinePage(msgspec.Struct, frozen=True, tag="outline"):
    """The texts of the page: `PageOutline`."""


class LearnRules(msgspec.Struct, frozen=True, tag="learn"):
    """Rules for these values of the page, by the names of their fields, tried on others: `LearnedHere`. `item` is the
    type of the records."""

    fields: dict[str, str]
    others: tuple[SentPage, ...]
    item: str


class WeighRules(msgspec.Struct, frozen=True, tag="weigh"):
    """How stable the rules of a recipe are, by this page and others: a list of `RuleStability`."""

    recipe: bytes
    file: str
    healed: RulesVersion | None = None  # above those of the file
    others: tuple[SentPage, ...] = ()


class LearnedHere(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe by example, and what its rules find on the other pages."""

    recipe: str
    fields: list[dict[str, Any]]  # FieldByExample
    tried: int


Reading = CheckRules | ExtractValues | FormatPage | ListLinks | DescribePage | CompareTexts
Work = Reading | OutlinePage | LearnRules | WeighRules


class PageOrder(SentPage, frozen=True, kw_only=True):
    """What to do within `seconds`, and the page to do it with. A check of rules needs none."""

    work: Work
    seconds: float


def sent_page(page: Snapshot) -> SentPage:
    return SentPage(
        url=page.url,
        requested_url=page.requested_url,
        status=page.status,
        headers=page.headers.pairs,
        body=page.body,
        fetched_at=page.fetched_at,
        cut=page.cut,
    )


def order_of(work: Work, page: Snapshot | None, seconds: float) -> PageOrder:
    sent = msgspec.structs.asdict(sent_page(page)) if page is not None else {}
    return PageOrder(work=work, seconds=seconds, **sent)


class _TooLong(BaseException):
    """The time is over."""


def _ring(number: int, frame: FrameType | None) -> None:
    raise _TooLong


def _done(order: PageOrder) -> Any:  # Any: any JSON
    match order.work:
        case CheckRules(rules):
            read_rules(rules)
            return None
        case ExtractValues(rules):
            return extract(read_rules(rules), order.page)
        case FormatPage(wanted):
            return formatted(order.page, wanted)
        case ListLinks(wanted):
            return links_in(order.page, wanted)
        case DescribePage(terms):
            return description_of(order.page, terms)
        case CompareTexts(before, after):
            sides = before.splitlines(), after.splitlines()
            return "\n".join(difflib.unified_diff(*sides, "previous", "current", lineterm=""))
        case OutlinePage():
            return _outline(order.page)
        case LearnRules(fields, others, item):
            return _learned(order.page, fields, [one.page for one in others], item)
        case WeighRules(recipe, file, healed, others):
            return _weighed(recipe, file, healed, [order.page, *(one.page for one in others)])


# The engine of learning is imported where it is used: most children never need it.


def _outline(page: Page) -> Any:
    from ...recipe.induction.outline import outline_of

    return outline_of(page)


def _weighed(recipe: bytes, file: str, healed: RulesVersion | None, pages: list[Page]) -> Any:
    from ...recipe.induction.stability import stability_of
    from ...recipe.overlay import with_rules
    from ...recipe.reader import read_recipe
    from ...recipe.spider import spider_of

    spider = spider_of(read_recipe(recipe, file))()
    return stability_of(with_rules(spider, healed) if healed is not None else spider, pages)


def _learned(page: Page, fields: dict[str, str], others: list[Page], item: str) -> LearnedHere:
    from ...recipe.by_example import ExamplePage, StartPages, learn_rules, recipe_with
    from ...recipe.reader import read_recipe

    learned = learn_rules([ExamplePage(page.url, fields)], [page], others)
    tried = f"tried on {many(len(others), 'other page')}. Add the list that leads to such pages."
    tried = f"Learned from 1 example; {tried}"
    recipe = recipe_with(learned, StartPages(urls=[page.url]), "FILE", tried, item=item)
    read_recipe(recipe.encode(), "FILE.toml")
    return LearnedHere(
        recipe=recipe,
        fields=msgspec.to_builtins(learned.field_views(learned.findings)),
        tried=len(others),
    )


def _answer(order: PageOrder) -> bytes:
    try:
        values = msgspec.to_builtins(_done(order), enc_hook=str)
    except BadRules as error:
        return msgspec.msgpack.encode(PageAnswer(fault=str(error)))
    except GossamerError as error:
        return msgspec.msgpack.encode(PageAnswer(failure=str(error)))
    except Exception as error:  # a page that breaks a rule or a reader fails alone
        failure = f"The page cannot be read in this way ({type(error).__name__})."
        return msgspec.msgpack.encode(PageAnswer(failure=failure))
    try:
        return msgspec.msgpack.encode(PageAnswer(values=values))
    except (OverflowError, ValueError):
        return msgspec.msgpack.encode(PageAnswer(text=json.dumps(values)))


def _serve(orders: BinaryIO, answers: BinaryIO) -> None:
    answers.write(HEAD.pack(0))  # ready
    answers.flush()
    while head := orders.read(HEAD.size):
        order = msgspec.msgpack.decode(orders.read(HEAD.unpack(head)[0]), type=PageOrder)
        try:
            signal.setitimer(signal.ITIMER_REAL, order.seconds)
            content = _answer(order)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except (_TooLong, MemoryError):
            content = b""
        del order  # its page may be large, and the next order may come late
        answers.write(HEAD.pack(len(content)) + content)
        answers.flush()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server
    signal.signal(signal.SIGALRM, _ring)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # even if it never reads its input again
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    _serve(orders, answers)


if __name__ == "__main__":
    main()
