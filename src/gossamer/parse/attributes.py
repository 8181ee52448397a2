"""Finds attributes of a spider that have no effect: names from other frameworks, and misspelled names of ours.
Attributes that a spider defines for its own use, and annotated ones, are ignored."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator

from .spider import Spider

_NEAR = 0.8  # difflib ratio: start_url is near start_urls, names is not near min_quality
_OTHER_WORDS = {
    "concurrent_requests": "Write site_concurrency = 4.",
    "concurrent_requests_per_domain": "Write site_concurrency = 4.",
    "custom_settings": "Write rate, site_concurrency, limit ... as attributes, and everything else in gossamer.toml.",
    "depth_limit": "Write max_depth = 3.",
    "download_delay": 'Write rate = "1/s".',
    "download_timeout": "Set fetch.total_timeout in gossamer.toml.",
    "handle_httpstatus_list": "Write handle_statuses = [404].",
    "item_pipelines": "Write pipeline = [step].",
    "retry_times": "Write max_attempts = 3.",
    "robotstxt_obey": "Write robots = True.",
    "start_requests": "Call it start: def start(self).",
    "user_agent": "Set fetch.user_agent in gossamer.toml.",
}


def unread_attributes(spider: Spider) -> list[str]:
    """One sentence for each attribute that was probably meant as a setting but has no effect."""
    told = {remark: remark for remark in spider._remarks()}
    for name, value in _own_attributes(spider):
        if name.startswith("_") or hasattr(Spider, name) or name in told:
            continue
        advice = _OTHER_WORDS.get(name.lower(), "")
        near = next((one for one in _near(name) if _may_be(one, value)), None)
        if advice or near:
            told[name] = f"{type(spider).__name__}.{name} has no effect. {advice or f'Did you mean {near}?'}"
    return list(told.values())


def _own_attributes(spider: Spider) -> Iterator[tuple[str, object]]:
    """Attributes that the user's classes define or `__init__` sets, without annotated ones."""
    annotated: set[str] = set()
    for base in type(spider).__mro__:
        if base is object or base.__module__.partition(".")[0] == __name__.partition(".")[0]:
            continue
        annotated |= {*inspect.get_annotations(base)}
        yield from ((name, value) for name, value in vars(base).items() if name not in annotated)
    if type(spider).__module__.partition(".")[0] != __name__.partition(".")[0]:
        yield from ((name, value) for name, value in vars(spider).items() if name not in annotated)


def _near(name: str) -> list[str]:
    return difflib.get_close_matches(name.lower(), inspect.get_annotations(Spider), n=2, cutoff=_NEAR)


def _may_be(attribute: str, value: object) -> bool:
    """Does the value have the attribute's type? A dict called `limits` is not a misspelled `limit`."""
    takes = str(inspect.get_annotations(Spider)[attribute])
    if isinstance(value, bool):
        return "bool" in takes
    if isinstance(value, int | float):
        return "int" in takes or "float" in takes
    if isinstance(value, str):
        return "str" in takes
    return isinstance(value, list | tuple | set) and "Sequence" in takes
