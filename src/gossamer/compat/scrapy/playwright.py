"""The `playwright` keys of scrapy-playwright in a request's meta, as instructions for our browser.

`PageMethod`s are read by their names and arguments, whether or not scrapy-playwright is installed. A method without
counterpart (any script but a scroll) is left out, with a warning that names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...model.route import LONGEST, MOMENTS, Action, Render

PLAYWRIGHT = "playwright"
METHODS = "playwright_page_methods"
# Keys that stand for live objects or for a browser of one's own, and what to do instead.
WITHOUT_EFFECT = {
    "playwright_include_page": "no live page reaches a callback; write what it does as playwright_page_methods",
    "playwright_page": "no live page reaches a callback; write what it does as playwright_page_methods",
    "playwright_context_kwargs": "the browser's terms are in [browser] of gossamer.toml",
    "playwright_page_event_handlers": "no code of the spider runs in the browser",
    "playwright_page_init_callback": "no code of the spider runs in the browser",
}
_SCROLL = re.compile(r"scroll(To|By|IntoView|Height)", re.IGNORECASE)
Warn = Callable[[str], None]


def render_of(meta: Mapping[str, Any], warn: Warn) -> Render | None:
    """What the browser should do; None if the request wants no more than a rendered page."""
    for name in sorted(WITHOUT_EFFECT.keys() & meta.keys()):
        if meta[name]:
            warn(f"meta[{name!r}] has no effect: {WITHOUT_EFFECT[name]}.")
    goto = meta.get("playwright_page_goto_kwargs") or {}
    moment = str(goto.get("wait_until", "")) if isinstance(goto, Mapping) else ""
    listed = meta.get(METHODS) or ()
    actions: list[Action] = []
    screenshot = False
    for one in listed.values() if isinstance(listed, Mapping) else listed:
        name, args, kwargs = call_parts(one)
        if name == "screenshot":
            screenshot = True
        elif name == "wait_for_load_state":
            moment = str((*args, kwargs.get("state") or "load")[0])
        elif (action := _action(name, args, kwargs)) is not None:
            actions.append(action)
        else:
            warn(f"PageMethod({name!r}) is left out: the browser has no such action. See docs/routes.md.")
    if not actions and not screenshot and not moment:
        return None
    return Render(wait_until=moment if moment in MOMENTS else "", actions=tuple(actions), screenshot=screenshot)


def call_parts(method: Any) -> tuple[str, Sequence[Any], Mapping[str, Any]]:
    """The name and the arguments of a PageMethod, or of the mapping that stands for it in a queued request."""
    if isinstance(method, Mapping):
        return str(method.get("method", "")), tuple(method.get("args", ())), dict(method.get("kwargs", {}))
    return str(getattr(method, "method", method)), getattr(method, "args", ()), getattr(method, "kwargs", {})


def queueable(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The meta with its PageMethods as mappings."""
    listed = meta.get(METHODS)
    if not listed:
        return dict(meta)
    pairs = listed.items() if isinstance(listed, Mapping) else enumerate(listed)
    kept = [(key, dict(zip(("method", "args", "kwargs"), call_parts(one), strict=True))) for key, one in pairs]
    plain = dict(kept) if isinstance(listed, Mapping) else [one for _, one in kept]
    return {**meta, METHODS: plain}


def _action(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Action | None:
    """Our action for a method of Playwright's pages. Raises ValueError for one that our browser refuses."""

    def given(place: int, *names: str) -> str:
        value = args[place] if len(args) > place else next((kwargs[one] for one in names if one in kwargs), "")
        return "" if value is None else str(value)

    first = given(0, "selector", "timeout", "expression")
    match name:
        case "wait_for_selector":
            limit = float(kwargs.get("timeout") or 30_000) / 1000
            return Action(do="wait", selector=first, seconds=min(limit, LONGEST))
        case "wait_for_timeout":
            return Action(do="wait", seconds=min(float(first or 0) / 1000, LONGEST))
        case "click" | "dblclick" | "check" | "tap":
            return Action(do="click", selector=first)
        case "fill":
            return Action(do="fill", selector=first, text=given(1, "value"))
        case "type" | "press_sequentially":
            return Action(do="type", selector=first, text=given(1, "text"))
        case "press":
            return Action(do="press", selector=first, text=given(1, "key"))
        case "select_option":
            return Action(do="select", selector=first, text=given(1, "value", "label"))
        case "evaluate" if _SCROLL.search(first):
            return Action(do="scroll")
    return None
