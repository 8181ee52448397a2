"""Prepares a page and reads it: waiting until it is ready, the spider's actions, and the reading itself.

How it fails: Playwright's Error, which browser_errors.py translates. The caller ends everything that takes too long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from ...errors import TimedOut
from ...model.route import Action, Render
from .guard import Pass
from .main_frame import MainFrame

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, FloatRect, Page, Request, ViewportSize

Moment = Literal["domcontentloaded", "load"]
MAX_REQUESTS = 500  # per page; beyond that the guard blocks it
_LONGEST_SETTLING = 10.0  # seconds that a page may take to become quiet if the spider did not ask for that
_SCROLL_SETTLING = 2.0
_NEVER_DONE = frozenset({"websocket", "eventsource", "ping", "media"})  # these may stay open for hours
_LOOK = 0.05
_SHARE_OF_ROUNDS = 2 / 3  # share of a page's time, after which no further round of an `until` action begins
_STOPPED = 1.0  # seconds after which a document that the browser no longer loads counts as stopped
_STILL = 1.0  # seconds without anything new that end scrolling, by default
_CLICKED = 2_000  # milliseconds to click an element that is there
_LONGEST_URL = 2_000  # characters
_FAR = 1_000_000  # pixels: to the bottom
SCREEN: ViewportSize = {"width": 1280, "height": 900}
_TALLEST = 10_000  # pixels of a screenshot
_READ_TRIES = 5
# In an isolated world, where the page's scripts have changed nothing. URL and text in one call: the page could navigate
# between two. Shadow roots are written as <template shadowrootmode>; closed ones are inaccessible.
_READ_PAGE = """(limit => {
  const html = document.documentElement, places = [document];
  for (const place of places)
    for (const one of place.querySelectorAll("*")) if (one.shadowRoot) places.push(one.shadowRoot);
  let text = document.doctype ? new XMLSerializer().serializeToString(document.doctype) : "";
  if (places.length > 1 && html.localName === "html")
    text += html.cloneNode().outerHTML.slice(0, -7) + html.getHTML({shadowRoots: places.slice(1)}) + "</html>";
  else if (html) text += html.outerHTML;
  return [document.URL, text.length > limit ? text.slice(0, limit + 1) : text];
})"""


# Click the elements and add the URLs they lead to as links at the end of the page. Navigation to another document is
# prevented; a URL that scripts push into the history is noted, and undone before the next click.
_COLLECT = """async ([selector, most]) => {
  const here = location.href, found = new Set(), wait = time => new Promise(done => setTimeout(done, time));
  const note = url => { const to = new URL(url, document.baseURI);
    if (/^https?:$/.test(to.protocol) && to.href.split("#")[0] !== here.split("#")[0]) found.add(to.href); };
  const stay = event => { if (event.destination.sameDocument || !event.cancelable) return;
    if (!event.formData) note(event.destination.url);
    event.preventDefault(); };
  const open = window.open;
  window.open = url => { note(url); return null; };
  navigation.addEventListener("navigate", stay);
  const count = document.querySelectorAll(selector).length;
  for (let at = 0; at < Math.min(count, most); at++) {
    document.querySelectorAll(selector)[at]?.click();
    await wait(20);
    if (location.href === here) continue;
    note(location.href);
    history.back();
    for (let looks = 0; looks < 50; looks++) {
      await wait(20);
      if (location.href === here && document.querySelectorAll(selector).length >= count) break;
    }
  }
  await wait(100);
  navigation.removeEventListener("navigate", stay);
  window.open = open;
  const list = document.createElement("nav");
  for (const url of found) list.append(Object.assign(document.createElement("a"), {href: url, textContent: url}));
  document.body.append(list);
  return count > most;
}"""


class PageTraffic:
    """The requests of a page: those in progress, their number, and whether its document has loaded. Beyond MAX_REQUESTS
    it gets no more.

    `on_too_many` is called once then: the page must be stopped, and its requests are no longer observed.
    """

    def __init__(self, gate_pass: Pass, page: Page, documents: MainFrame, on_too_many: Callable[[], None]) -> None:
        self._pass = gate_pass
        self._page = page
        self._documents = documents
        self._on_too_many = on_too_many
        self._under_way: set[int] = set()
        self._kept: dict[int, Request] = {}  # keeping the request alive keeps its id unique
        self._last_change = time.monotonic()
        self.requests = 0
        self.action: Action | None = None  # the one in progress; waiting for an element is one
        self.done: list[str] = []  # URLs of finished requests; at most MAX_REQUESTS are observed
        page.on("request", self._began)
        page.on("requestfinished", self._ended)
        page.on("requestfailed", self._ended)

    @property
    def too_many(self) -> bool:
        return self.requests > MAX_REQUESTS

    def _began(self, request: Request) -> None:
        if self.too_many:
            return  # sent before the driver knew that the listener was removed
        self.requests += 1
        if self.too_many:
            self._pass.cut()
            self._page.remove_listener("request", self._began)
            self._page.remove_listener("requestfinished", self._ended)
            self._page.remove_listener("requestfailed", self._ended)
            self._under_way.clear()
            self._kept.clear()
            self._on_too_many()
            return
        if request.resource_type not in _NEVER_DONE:
            self._under_way.add(id(request))
            self._kept[id(request)] = request
            self._last_change = time.monotonic()

    def _ended(self, request: Request) -> None:
        if id(request) in self._under_way:
            self._under_way.discard(id(request))
            self._kept.pop(id(request), None)
            self.done.append(request.url[:_LONGEST_URL])
            self._last_change = time.monotonic()

    @property
    def busy(self) -> bool:
        return bool(self._under_way)

    async def ended(self, part: str, since: int) -> None:
        """Wait until a request whose URL contains `part` has ended; the first `since` finished requests do not
        count."""
        while not any(part in url for url in self.done[since:]):  # noqa: ASYNC110  # time is asked for
            await asyncio.sleep(_LOOK)

    async def loaded(self, moment: Moment = "load") -> bool:
        """Wait for that load state of the document. False if it never comes: a script has stopped the document, by
        `window.stop()`, or by navigating to something that is not shown."""
        came = asyncio.ensure_future(self._page.wait_for_load_state(moment, timeout=0))
        try:
            while not came.done():
                if self._documents.still_for > _STOPPED:
                    self._forget_documents()
                    return False
                await asyncio.wait((came,), timeout=_LOOK)
            await came
        finally:
            came.cancel()
            await asyncio.gather(came, return_exceptions=True)
        return True

    def _forget_documents(self) -> None:
        """The browser does not report the end of a stopped document."""
        for key, request in tuple(self._kept.items()):
            if request.is_navigation_request():
                self._under_way.discard(key)
                del self._kept[key]

    async def quiet(self, settle: float) -> None:
        """Wait until no request was in progress for `settle` seconds."""
        while self._under_way or time.monotonic() - self._last_change < settle:  # noqa: ASYNC110  # time is asked for
            await asyncio.sleep(_LOOK)


async def stop_page(session: CDPSession) -> None:
    """Stop all scripts of the page, even endless loops, and all loading. The page can still be read.

    Raises Playwright's Error.
    """
    # Sent all at once: each takes a while if the page is busy.
    orders: tuple[tuple[str, dict[str, Any]], ...] = (
        ("Emulation.setScriptExecutionDisabled", {"value": True}),
        ("Runtime.terminateExecution", {}),
        ("Page.stopLoading", {}),
        ("Network.disable", {}),
        ("Fetch.disable", {}),
    )
    await asyncio.gather(*(session.send(name, order) for name, order in orders))


async def make_ready(page: Page, traffic: PageTraffic, render: Render, settle: float, patience: float) -> str:
    """Wait and act as the spider asked. Return why the page may be incomplete. `patience`: seconds for all of it."""
    notes = []
    last_round = time.monotonic() + patience * _SHARE_OF_ROUNDS
    moment: Moment = "load" if render.wait_until in ("load", "networkidle") else "domcontentloaded"
    if not await traffic.loaded(moment):
        notes.append("a script stopped it before it had loaded")
    if render.wait_until == "networkidle":
        await traffic.quiet(settle)
    elif not (render.wait_until or render.wait_for or await _settled(traffic, settle, _LONGEST_SETTLING)):
        notes.append(f"not quiet after {_LONGEST_SETTLING:g} s")
    if render.wait_for:
        traffic.action = Action(do="wait", selector=render.wait_for)
        await page.wait_for_selector(_css(render.wait_for), state="attached", timeout=0)
        traffic.action = None
    if render.wait > 0:
        await asyncio.sleep(render.wait)
    since = 0
    for action in render.actions:
        before = len(traffic.done)
        traffic.action = action
        notes.append(await _act(page, traffic, action, settle, since, last_round))
        since = before
    traffic.action = None
    if render.actions:
        await _settled(traffic, settle, _LONGEST_SETTLING)
    return "; ".join(filter(None, notes))


async def _settled(traffic: PageTraffic, settle: float, longest: float) -> bool:
    try:
        async with asyncio.timeout(longest):
            await traffic.loaded()
            await traffic.quiet(settle)
    except TimeoutError:
        return False
    return True


async def _act(page: Page, traffic: PageTraffic, action: Action, settle: float, since: int, last_round: float) -> str:
    """Do the action. Return why it did not complete. `since`: how many requests had ended before the previous action.
    `last_round`: no round of an action with an `until` begins later, so that its results so far are not lost."""
    if action.until:
        began = time.monotonic()
        for times in range(action.most):
            if times and (now := time.monotonic()) > last_round:
                return f"{action_words(action)} until {action.until}: not after {times} times in {now - began:.0f} s"
            if action.do == "scroll":
                more = await _scroll_on(page, traffic, action, settle)
            else:
                more = await _click_if_there(page, traffic, action, settle, clicked=times > 0)
            if not more:
                return ""
        return f"{action_words(action)} until {action.until}: not after {action.most} times"
    if action.do == "collect":
        return await _collect(page, action)
    for _ in range(max(1, action.times)):
        if action.do == "click":
            await page.locator(_css(action.selector)).first.click(timeout=0)
        elif action.do == "fill":
            await page.locator(_css(action.selector)).first.fill(action.text, timeout=0)
        elif action.do == "select":
            await page.locator(_css(action.selector)).first.select_option(action.text, timeout=0)
            await _settled(traffic, settle, _SCROLL_SETTLING)
        elif action.do == "type":
            await page.locator(_css(action.selector)).first.press_sequentially(action.text, timeout=0)
        elif action.do == "press":
            if action.selector:
                await page.locator(_css(action.selector)).first.press(action.text, timeout=0)
            else:
                await page.keyboard.press(action.text)
        elif action.do == "scroll":
            if action.selector:
                await page.locator(_css(action.selector)).first.scroll_into_view_if_needed(timeout=0)
            else:
                await page.mouse.wheel(0, SCREEN["height"])
            await _settled(traffic, settle, _SCROLL_SETTLING)
        elif action.text:
            await _request_ended(page, traffic, action, since)
        elif action.selector:
            await _element_came(page, action)
        else:
            await asyncio.sleep(action.seconds)
    return ""


async def _collect(page: Page, action: Action) -> str:
    more = await page.evaluate(_COLLECT, [action.selector, action.most])
    return f"{action_words(action)}: more than {action.most} elements" if more is True else ""


def action_words(action: Action) -> str:
    """An action in a few words."""
    return " ".join(filter(None, (action.do, action.selector)))[:200]


async def obstacle(page: Page, action: Action) -> str:
    """What prevents an action. Raises Playwright's Error."""
    if not action.selector:
        return ""
    fits = page.locator(_css(action.selector))
    if not await fits.count():
        for frame in page.frames[1:]:
            if frame.url.startswith("http") and await frame.locator(_css(action.selector)).count():
                return f"the element is in a frame; fetch the frame itself, {frame.url[:200]}"
        return "there is no such element"
    if action.do == "wait":
        return ""
    if not await fits.first.is_visible():
        return "the element is not visible"
    if not await fits.first.is_enabled():
        return "the element is disabled"
    return _OBSTACLES.get(action.do, "")


_OBSTACLES = {
    "click": "something covers the element, or it keeps moving",
    "fill": "the element cannot be filled",
    "select": "the element has no such option",
}


async def _element_came(page: Page, action: Action) -> None:
    from playwright.async_api import TimeoutError as NotInTime

    try:
        await page.wait_for_selector(_css(action.selector), state="attached", timeout=action.seconds * 1000)
    except NotInTime as error:
        raise TimedOut(
            f"{page.url[:200]}: there was no element {action.selector[:200]} within {action.seconds:g} s."
        ) from error


async def _request_ended(page: Page, traffic: PageTraffic, action: Action, since: int) -> None:
    try:
        async with asyncio.timeout(action.seconds or None):
            await traffic.ended(action.text, since)
    except TimeoutError as error:
        url = page.url[:200]
        raise TimedOut(f"{url}: no request to {action.text[:200]!r} ended within {action.seconds:g} s.") from error


async def _click_if_there(page: Page, traffic: PageTraffic, action: Action, settle: float, *, clicked: bool) -> bool:
    """Click the element. False if it is gone: absent, invisible or disabled. After a click it may be so for a while
    only, as long as it loads."""
    from playwright.async_api import TimeoutError as NotInTime

    element = page.locator(_css(action.selector)).first

    async def can_be_clicked() -> bool:
        with suppress(NotInTime):  # it disappeared between the two calls
            return await element.is_visible() and await element.is_enabled(timeout=_CLICKED)
        return False

    if not await can_be_clicked() and not (clicked and await _comes(traffic, action, settle, can_be_clicked)):
        return False
    with suppress(NotInTime):  # it disappeared meanwhile, or is covered: the next check will tell
        await element.click(timeout=_CLICKED)
    await _settled(traffic, settle, _SCROLL_SETTLING)
    return True


async def _scroll_on(page: Page, traffic: PageTraffic, action: Action, settle: float) -> bool:
    """Scroll to the bottom of the page or of an element. False if nothing new appeared."""
    before = await _size(page)
    if action.selector:
        await page.locator(_css(action.selector)).last.hover(timeout=0)
    await page.mouse.wheel(0, _FAR)

    async def has_grown() -> bool:
        return await _size(page) != before

    if not await _comes(traffic, action, settle, has_grown):
        return False
    await _settled(traffic, settle, _SCROLL_SETTLING)
    return True


async def _comes(traffic: PageTraffic, action: Action, settle: float, is_so: Callable[[], Awaitable[bool]]) -> bool:
    """Poll until `is_so`; False if it was not within the seconds of the action, extended while requests are in
    progress."""
    now = time.monotonic()
    till, latest = now + (action.seconds or _STILL), now + _LONGEST_SETTLING
    while not await is_so():
        now = time.monotonic()
        if traffic.busy:  # its response may be slow
            till = max(till, min(now + settle, latest))
        if now > till:
            return False
        await asyncio.sleep(_LOOK)
    return True


async def _size(page: Page) -> str:
    """A measure that grows with new content. It is only compared, so the page may return anything."""
    return str(await page.evaluate("[document.documentElement.scrollHeight, document.querySelectorAll('*').length]"))


def _css(selector: str) -> str:
    return f"css={selector}"


async def read_page(session: CDPSession, limit: int) -> tuple[str, str]:
    """The current URL of the page, and its HTML, at most one character longer than `limit`. Raises Playwright's
    Error."""
    from playwright.async_api import Error

    for tries_left in reversed(range(_READ_TRIES)):
        try:
            frame = (await session.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
            world = await session.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": "reader"})
            found: dict[str, Any] = await session.send(
                "Runtime.evaluate",
                {
                    "expression": f"{_READ_PAGE}({limit})",
                    "contextId": world["executionContextId"],
                    "returnByValue": True,
                },
            )
            url, text = found["result"].get("value") or ("", "")
            return str(url), str(text)
        except Error:
            if not tries_left:
                raise
            await asyncio.sleep(_LOOK)  # the page navigated while it was read
    raise AssertionError("unreachable")


async def take_picture(page: Page) -> bytes:
    """A PNG of the whole page, down to a maximum height."""
    # The browser clips this to the page.
    whole: FloatRect = {"x": 0, "y": 0, "width": SCREEN["width"], "height": _TALLEST}
    return await page.screenshot(full_page=True, timeout=0, clip=whole)
