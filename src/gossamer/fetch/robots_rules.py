"""The rules of one robots.txt for one crawler (RFC 9309). Pure: text in, rules out; no text makes it raise.

protego does the matching. Before that, only the group that applies to us is handed over, since a file of 500 KiB can
name 15,000 agents over 20,000 rules, and their product would not fit into memory. Rules with `*` cost time for each
URL, so only `MAX_WILDCARD_RULES` of them count, with `MAX_STARS` each (4,200 real files: at most 575 and 12). If a rule
has more stars, a Disallow is cut at the last permitted one and so forbids more; an Allow is ignored. Only `MAX_RULES`
of a group count: each takes some 400 bytes of memory, many times its text. `weight` is the total.
"""

from __future__ import annotations

import codecs
import re
from datetime import timedelta

from protego import Protego

MAX_TEXT = 500 * 1024  # bytes; RFC 9309 requires no more
MAX_RULES = 10_000
MAX_WILDCARD_RULES = 2000
MAX_STARS = 20
_MAX_LINE = 2500  # longer than any URL that is crawled
_EXPLAINED = 200  # with more rules than this a refusal does not name its rule

_AGENT = re.compile(r"user[- ]?agent\s*[:\s]\s*(.*)", re.IGNORECASE)
_RULE = re.compile(r"(allow|dis+al+[oa]w|diasllow)\s*[:\s]\s*(.*)", re.IGNORECASE)
_DELAY = re.compile(r"crawl[- ]delay(?:\s*+:\s*+|\s++)(\d{1,12}(?:\.\d{0,12})?|\.\d{1,12})\s*", re.IGNORECASE)
_APART = re.compile(r"(?:site-?maps?|host)\s*:", re.IGNORECASE)
_TOKEN = re.compile(r"[A-Za-z_-]+")
_COMPATIBLE = re.compile(r"compatible;\s*([A-Za-z_-]+)", re.IGNORECASE)
_STARS = re.compile(r"\*{2,}")
_LINES = re.compile(r"\r\n|\r|\n")


def product_token(user_agent: str) -> str:
    """Our name in robots.txt: `Gossamer/0.1 (+https://...)` gives `gossamer`.

    For a browser-like `Mozilla/5.0 (compatible; Foobot/1.0)` it is the name after `compatible`.
    """
    found = _TOKEN.match(user_agent.strip())
    name = found[0].lower() if found else ""
    if name == "mozilla" and (inner := _COMPATIBLE.search(user_agent)):
        return inner[1].lower()
    return name


class RobotsRules:
    """What is allowed. Immutable."""

    __slots__ = ("_named", "_patterns", "_robot", "crawl_delay", "weight")

    def __init__(self, patterns: tuple[tuple[str, str], ...] = (), crawl_delay: timedelta | None = None) -> None:
        self.crawl_delay = crawl_delay
        self._patterns = patterns
        self._robot = _robot(patterns) if patterns else None
        self._named: list[tuple[str, Protego]] | None = None
        # Bytes of memory, roughly. If a refusal names its rule, each rule also has its own matcher.
        each = 2_000 if len(patterns) <= _EXPLAINED else 500
        self.weight = 1_000 + sum(each + 3 * len(pattern) for _, pattern in patterns)

    def allowed(self, url: str) -> bool:
        return self._robot is None or bool(self._robot.can_fetch(url, "*"))

    def refusal(self, url: str) -> str:
        """The rule that forbids `url`, as written in the file; empty if unknown."""
        if len(self._patterns) > _EXPLAINED or self.allowed(url):
            return ""
        if self._named is None:
            forbidding = [pair for pair in self._patterns if pair[0] == "disallow"]
            forbidding.sort(key=lambda pair: -len(pair[1]))
            self._named = [(f"Disallow: {pair[1]}", _robot((pair,))) for pair in forbidding]
        return next((text for text, robot in self._named if not robot.can_fetch(url, "*")), "")


ALLOW_ALL = RobotsRules()


def _robot(patterns: tuple[tuple[str, str], ...]) -> Protego:
    return Protego.parse("\n".join(["user-agent: *", *(f"{verb}: {pattern}" for verb, pattern in patterns)]))


def robots_text(body: bytes, *, cut: bool) -> str:
    """The file as text, at most MAX_TEXT bytes of it; as UTF-16 if it starts with that BOM. `cut`: `body` is only the
    beginning of the file. The last, partial line of a cut file is dropped: half of `Disallow: /private` may be
    `Disallow: /`."""
    encoding = "utf-16" if body[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8"
    text = body[:MAX_TEXT].decode(encoding, "replace")
    if cut or len(body) > MAX_TEXT:
        text = text[: max(text.rfind("\n"), text.rfind("\r")) + 1]
    return text


def read_robots(text: str, token: str, max_crawl_delay: timedelta) -> RobotsRules:
    """The rules for the crawler called `token`: its own group if there is one, else the `*` group.

    HTML and binary files contain no rules: everything is allowed.
    """
    text = text[:MAX_TEXT].lstrip("\ufeff")
    head = text[:1024].lstrip()
    if head.startswith("<") or "\0" in head:
        return ALLOW_ALL
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")  # a shelf may hold lone surrogates
    ours, everybodys = _AgentGroup(), _AgentGroup()
    own_group_seen = False
    current: tuple[_AgentGroup, ...] = ()
    naming = False  # within the user-agent lines that begin a group
    for raw in _LINES.split(text):
        line = raw.partition("#")[0].strip()
        if not line or len(line) > _MAX_LINE or _APART.match(line):
            continue
        if agent := _AGENT.match(line):
            if not naming:
                current, naming = (), True
            name = _TOKEN.match(agent[1])
            if agent[1].split()[:1] == ["*"]:
                current += (everybodys,) if everybodys not in current else ()
            elif name and name[0].lower() == token:
                own_group_seen = True
                current += (ours,) if ours not in current else ()
            continue
        if rule := _RULE.match(line):
            naming = False
            verb = "allow" if rule[1][0] in "aA" else "disallow"
            for group in current:
                group.add(verb, rule[2].strip())
        elif delay := _DELAY.fullmatch(line):
            for group in current:
                group.delay = float(delay[1])
    return (ours if own_group_seen else everybodys).rules(max_crawl_delay)


class _AgentGroup:
    def __init__(self) -> None:
        self._patterns: dict[tuple[str, str], None] = {}
        self._wildcards = 0
        self.delay: float | None = None

    def add(self, verb: str, pattern: str) -> None:
        # protego also breaks lines at form feeds and similar characters; a pattern must stay one line there.
        if len(pattern.splitlines()) != 1 or len(self._patterns) >= MAX_RULES:
            return
        if "*" in pattern:
            pattern = _STARS.sub("*", pattern)
            if self._wildcards >= MAX_WILDCARD_RULES:
                return
            if pattern.count("*") > MAX_STARS:
                if verb == "allow":
                    return
                pattern = "*".join(pattern.split("*", MAX_STARS)[:MAX_STARS])
            self._wildcards += 1
        self._patterns[verb, pattern] = None

    def rules(self, max_crawl_delay: timedelta) -> RobotsRules:
        delay = None
        if self.delay:
            delay = timedelta(seconds=min(self.delay, max_crawl_delay.total_seconds()))
        return RobotsRules(tuple(self._patterns), delay)
