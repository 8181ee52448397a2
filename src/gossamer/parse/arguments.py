"""Arguments of a spider: its annotated class attributes, which a crawl may set; and attributes without effect.

    class Members(Spider):
        category: str = "all"
        pages: int = 10

Allowed types are str, int, float, bool, Literal, lists of these, and any of them or None. The attributes of `Spider`
itself (rate, name ...) are settings, not arguments. How it fails: Misconfigured, with a list of the arguments that
exist.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from ..errors import Misconfigured
from ..model.item import safe_text
from .spider import Spider

LONGEST = 10_000  # characters of all arguments of a job, as JSON
_LONGEST_SHOWN = 60  # characters of the arguments in the name of a job
_PLAIN = (str, int, float, bool)

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


def declared_arguments(cls: type[Spider]) -> dict[str, Any]:  # Any: a type
    """The types of the spider's arguments, by name."""
    reserved = {*vars(Spider), *Spider.__annotations__}
    own = [
        name
        for base in reversed(cls.__mro__)
        if issubclass(base, Spider) and base is not Spider
        for name in inspect.get_annotations(base)
    ]
    names = [name for name in dict.fromkeys(own) if not name.startswith("_") and name not in reserved]
    if not names:
        return {}
    try:
        hints = get_type_hints(cls)
    except Exception as error:  # a name imported for type checkers only, or any error in an annotation
        raise Misconfigured(f"Spider {cls.name}: its annotations cannot be read ({error}).") from error
    return {name: hints[name] for name in names if _is_plain(hints[name])}


def _is_plain(hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return all(one is NoneType or _is_plain(one) for one in get_args(hint))
    if origin is list:
        return all(map(_is_plain, get_args(hint)))
    return origin is Literal or hint in _PLAIN


def written_arguments(words: Iterable[str]) -> dict[str, Any]:
    """Parse `name=value` words; a name given more than once gets a list of its values. Raises Misconfigured."""
    given: dict[str, list[str]] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name.strip().isidentifier():
            raise Misconfigured(f"{word[:100]!r} is not an argument. Write name=value: -a category=lamps.")
        given.setdefault(name.strip(), []).append(value)
    return {name: values if len(values) > 1 else values[0] for name, values in given.items()}


def checked_arguments(cls: type[Spider], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments converted to their types, by name, without those equal to the spider's defaults.

    Raises Misconfigured for an unknown argument or a value of the wrong type.
    """
    if not given:
        return {}
    if cls._takes_any_argument:
        return _as_texts(cls, given)
    known = declared_arguments(cls)
    checked = {}
    for name in sorted(given):
        if name not in known:
            raise Misconfigured(_unknown(cls, name, known))
        value = _typed(cls, name, known[name], given[name])
        if not hasattr(cls, name) or getattr(cls, name) != value or type(getattr(cls, name)) is not type(value):
            checked[name] = value
    return _of_fitting_length(cls, checked)


def _of_fitting_length(cls: type[Spider], checked: dict[str, Any]) -> dict[str, Any]:
    if len(msgspec.json.encode(checked)) > LONGEST:
        raise Misconfigured(f"The arguments of {cls.name} are longer than {LONGEST:,} characters. Pass a file's name.")
    return checked


def _as_texts(cls: type[Spider], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a spider that accepts any, as text. The last value counts if several are given."""
    last = {name: value[-1] if isinstance(value, list) and value else value for name, value in given.items()}
    return _of_fitting_length(cls, {name: _typed(cls, name, str, str(last[name])) for name in sorted(last)})


def _typed(cls: type[Spider], name: str, hint: Any, value: Any) -> Any:
    if isinstance(value, str):
        if safe_text(value) != value:
            raise Misconfigured(f"Argument {name} of {cls.name} has characters that cannot be stored.")
        if _takes_list(hint):
            value = [part.strip() for part in value.split(",")] if value.strip() else []
    try:
        typed = msgspec.convert(value, hint, strict=False)
        if any(isinstance(one, float) and not isfinite(one) for one in (typed if isinstance(typed, list) else [typed])):
            raise TypeError("it is not a finite number")
        return typed
    except (msgspec.ValidationError, TypeError) as error:
        what = str(error).replace("`", "").partition(" - at ")[0]
        raise Misconfigured(f"Argument {name} of {cls.name} cannot be {value!r:.80}: {what}.") from error


def _takes_list(hint: Any) -> bool:
    arms = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return any(arm is list or get_origin(arm) is list for arm in arms)


def _unknown(cls: type[Spider], name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    if hasattr(Spider, name):
        return f"{name} is an attribute of every spider, not an argument of {cls.name}. Set it in the class."
    has = f"it has {', '.join(known)}" if known else f"it has none. Declare it in the class: `{name}: str = ...`"
    return f"Spider {cls.name} has no argument {name!r}; {has}.{hint}"


def with_arguments(spider: Spider, given: Mapping[str, Any]) -> Spider:
    """The spider with these arguments set. Raises Misconfigured."""
    checked = checked_arguments(type(spider), given)
    if not type(spider)._takes_any_argument:
        for name, value in checked.items():
            setattr(spider, name, value)
    if checked:
        spider.arguments = checked
    return spider


def stored_arguments(checked: Mapping[str, Any]) -> str:
    """Arguments as a job stores them: canonical JSON, or "" if there are none."""
    return msgspec.json.encode(dict(sorted(checked.items()))).decode() if checked else ""


def job_name(base: str, checked: Mapping[str, Any]) -> str:
    """The name of a job with these arguments. With other arguments the same spider makes a different job."""
    if not checked:
        return base
    words = ", ".join(f"{name}={_word(value)}" for name, value in sorted(checked.items()))
    if len(words) > _LONGEST_SHOWN or not words.isprintable():
        digest = blake2b(stored_arguments(checked).encode(), digest_size=5).hexdigest()
        words = f"{''.join(filter(str.isprintable, words))[:_LONGEST_SHOWN]}... {digest}"
    return f"{base} ({words})"


def _word(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


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
