"""Trying Scrapy spiders out: the contracts in the docstrings of their callbacks, and the names of Scrapy's own shell.

How it fails: a contract that does not hold is a line, and so is a callback that raises; what is wrong with a contract
itself (an unknown one, wrong arguments) is Misconfigured.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Any
from unittest import TestCase, TestResult

import scrapy
from scrapy.contracts import ContractsManager
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import load_object

from ...errors import Misconfigured
from ...model.task import Request
from ...parse.page import Page
from ...parse.spider import Contract
from .components import settled
from .responses import made_response

_HAS_CONTRACT = re.compile(r"^\s*@\w", re.MULTILINE)
_Raised = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


class _Results(TestResult):
    """What the hooks of one method's contracts found."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def addFailure(self, test: TestCase, err: _Raised) -> None:
        self._note(test, err)

    def addError(self, test: TestCase, err: _Raised) -> None:
        self._note(test, err)

    def _note(self, test: TestCase, err: _Raised) -> None:
        told = str(err[1]) if isinstance(err[1], AssertionError) else _line(err[1])
        contract = str(test).rpartition(" (")[2].removesuffix(")").partition(" ")[0]
        self.lines += f"{contract}: {told}".splitlines()


def contracts_of(spider: scrapy.Spider, queued: Callable[[scrapy.Request], Request]) -> Iterator[Contract]:
    """The contracts of a spider's methods, each with the request for its page. Raises Misconfigured."""
    listed = build_component_list(spider.settings.get_component_priority_dict_with_base("SPIDER_CONTRACTS"))
    manager = ContractsManager(load_object(one) for one in listed)
    for name in manager.tested_methods_from_spidercls(type(spider)):
        method, results = getattr(spider, name), _Results()
        if not _HAS_CONTRACT.search(method.__doc__ or ""):
            continue
        try:
            request = manager.from_method(method, results)
        except Exception as error:  # of a contract of the project's own; KeyError for an unknown one
            words = f"there is no contract {error}" if isinstance(error, KeyError) else str(error)
            raise Misconfigured(f"The contracts of {type(spider).__name__}.{name} cannot be read: {words}.") from error
        if request is not None:  # without @url there is no page
            check = partial(_check, request=request, results=results)
            yield Contract(name=name, request=queued(request), check=check)


async def _check(page: Page, *, request: scrapy.Request, results: _Results) -> list[str]:
    response = made_response(page.url, page.status, page.headers, page.body, request)
    callback: Any = request.callback
    try:
        await settled(callback(response, **request.cb_kwargs), "the callback")
    except Exception as error:  # of the user's code
        results.lines.append(_line(error))
    return results.lines


def _line(error: BaseException | None) -> str:
    return "".join(traceback.format_exception_only(error)).strip() if error is not None else "it failed"


def shell_names(spider: scrapy.Spider, response: Any) -> dict[str, Any]:
    """What Scrapy's shell has at its prompt, besides `fetch` and `view`."""
    crawler: Any = spider.crawler
    found = {"scrapy": scrapy, "crawler": crawler, "spider": spider, "settings": crawler.settings}
    return {**found, "response": response, "request": response.request, "sel": getattr(response, "selector", None)}
