"""Attributes of a spider that nobody reads: words of other frameworks, and ours with a letter wrong. An attribute that
a spider defines for its own use is left alone; so is one with an annotation."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator

from .spider import Spider

_NEAR = 0.8  # of difflib's ratio: start_url is near start_urls, names is not near min_quality
_OTHER_WORDS = {
    "concurrent_requests": "Write concurrency = 4.",
    "concurrent_requests_per_domain": "Write concurrency = 4.",
    "custom_settings": "Write rate, concurrency, limit ... as attributes, and all else into gossamer.toml.",
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
    """One sentence for each attribute that is probably meant for us and has no effect."""
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
    """What the user's classes define, without annotated attributes, and what `__init__` has set."""
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
    """Is the value what the attribute of ours takes? A table called `limits` is something else than `limit`."""
    takes = str(inspect.get_annotations(Spider)[attribute])
    if isinstance(value, bool):
        return "bool" in takes
    if isinstance(value, int | float):
        return "int" in takes or "float" in takes
    if isinstance(value, str):
        return "str" in takes
    return isinstance(value, list | tuple | set) and "Sequence" in takes
