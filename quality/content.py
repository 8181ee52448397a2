"""How well the main content of any page is found: articles, documentation, forums, lists, shops, services.

The measure is the one of the Web Content Extraction Benchmark, which the set is a part of: words (`\\w+`) in lower case
as multisets; F1 of one page is made of the words that both texts have, a page whose true text is empty counts 1 if
nothing was found and else 0, and the score is the average over pages. The benchmark has many more articles than the set
(53 of a hundred pages, where this set has 18), so its published figures compare with the column "published mix": the
averages of the types in the benchmark's shares. "all" counts the pages of the set alike.

Every table has three parts: all pages, those that rules were written with, and the third that was kept aside. Other
extractors are run where GOSSAMER_QUALITY_PEERS names a Python that has them.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.table import table

from gossamer.parse.page import Page

from .corpora import CORPORA, absent, kept_aside, page_of

SET = "web-content"
TYPES = ("article", "documentation", "service", "forum", "listing", "collection", "product")
# Pages by type in the benchmark's development part; the figures that others publish are averages over these.
PUBLISHED_MIX = dict(zip(TYPES, (793, 91, 165, 113, 99, 117, 119), strict=True))
PUBLISHED = {
    "rs-trafilatura, published": (0.859, (0.932, 0.931, 0.843, 0.792, 0.704, 0.713, 0.670)),
    "trafilatura, published": (0.791, ()),
}
PEERS = "GOSSAMER_QUALITY_PEERS"
_WORD = re.compile(r"\w+")


class Case(NamedTuple):
    """A page, its type and the text of its main content."""

    name: str
    url: str
    type: str
    text: str
    author: str | None
    date: str | None

    def page(self) -> Page:
        return page_of(SET, self.name, self.url)


class Result(NamedTuple):
    """F1 by the name of the page, and the milliseconds of CPU that a page took."""

    f1: dict[str, float]
    milliseconds: float


def cases() -> list[Case]:
    """The pages of the set, in the order of their names."""
    with gzip.open(CORPORA / SET / "truth.jsonl.gz", "rt", encoding="utf-8") as lines:
        truth = [json.loads(line) for line in lines]
    found = [Case(one["id"], one["url"], one["type"], one["text"], one["author"], one["date"]) for one in truth]
    return sorted(found)


def word_f1(true: str, ours: str) -> float:
    """The harmonic mean of precision and recall of the words; 1 when both texts are empty."""
    wanted, found = (Counter(_WORD.findall(text.lower())) for text in (true, ours))
    if not wanted and not found:
        return 1.0
    return 2 * (wanted & found).total() / (wanted.total() + found.total())


def measure(known: list[Case], extract: Callable[[Page], str]) -> Result:
    """Ours: parsing the page is part of the time, as it is for the others."""
    scores, seconds = {}, 0.0
    for case in known:
        page = case.page()
        began = time.thread_time()
        text = extract(page)
        seconds += time.thread_time() - began
        scores[case.name] = word_f1(case.text, text)
    return Result(scores, 1000 * seconds / len(known))


def mean(result: Result, known: list[Case]) -> float:
    return sum(result.f1[case.name] for case in known) / len(known) if known else 0.0


def in_published_mix(by_type: Sequence[float]) -> float:
    """The average of the averages of the types, each as often as the benchmark has pages of it."""
    shares = PUBLISHED_MIX.values()
    return sum(share * f1 for share, f1 in zip(shares, by_type, strict=True)) / sum(shares)


def byline_counts(known: list[Case]) -> list[str]:
    """Two lines: how many dates and authors are right, wrong, missing, and told where the true answer is none."""
    counts = {"dates": Counter[str](), "authors": Counter[str]()}
    for case in known:
        facts = case.page().metadata()
        date = facts.published.date().isoformat() if facts.published is not None else ""
        counts["dates"][_verdict((case.date or "")[:10], [date] if date else [])] += 1
        counts["authors"][_verdict(_plain(case.author or ""), [*map(_plain, facts.authors)])] += 1
    lines = []
    for what, count in counts.items():
        true = count["right"] + count["wrong"] + count["missing"]
        told = ", ".join(f"{count[verdict]} {verdict}" for verdict in ("right", "wrong", "missing", "invented"))
        lines.append(f"{what}: {told}; recall {count['right'] / max(true, 1):.3f}")
    return lines


def _verdict(true: str, told: list[str]) -> str:
    if not true:
        return "invented" if told else "rightly none"
    if not told:
        return "missing"
    return "right" if any(one in true or true in one for one in told if one) else "wrong"


def _plain(name: str) -> str:
    return " ".join(_WORD.findall(name.lower()))


def report() -> list[str]:
    """The lines of this section."""
    missing = absent(SET)
    if missing:
        return missing
    known = cases()
    results = {"gossamer": measure(known, Page.main_text), **_peers(known)}
    kinds = {case.name: case.page().kind_of_page().name for case in known}
    parts = {
        "all pages": known,
        "rules written with": [case for case in known if not kept_aside(case.name)],
        "kept aside": [case for case in known if kept_aside(case.name)],
    }
    lines = []
    for title, part in parts.items():
        head = [f"{title}: {len(part)}", "all", "published mix", *TYPES, "ms/page"]
        rows = []
        for name, result in results.items():
            by_type = [mean(result, [case for case in part if case.type == each]) for each in TYPES]
            figures = [f"{each:.3f}" for each in (mean(result, part), in_published_mix(by_type), *by_type)]
            rows.append([name, *figures, f"{result.milliseconds:.1f}"])
        for name, (mixed, types) in PUBLISHED.items() if part is known else ():
            rows.append([name, "", *(f"{each:.3f}" for each in (mixed, *types)), *[""] * (len(TYPES) - len(types) + 1)])
        right = sum(kinds[case.name] == case.type for case in part)
        lines += [
            table(head, rows),
            f"kinds of pages that are told right: {right} of {len(part)}",
            *byline_counts(part),
            "",
        ]
    if len(results) == 1:
        lines.append(f"No other extractors: {PEERS} names no Python that has trafilatura or readability-lxml.")
    return lines


def _peers(known: list[Case]) -> dict[str, Result]:
    """What other extractors score; empty where there are none."""
    python = os.environ.get(PEERS)
    if not python:
        return {}
    script = Path(__file__).with_name("peer_texts.py")
    done = subprocess.run(
        [python, str(script), str(CORPORA / SET / "html"), *(case.name for case in known)],
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    texts: dict[str, dict[str, str]] = defaultdict(dict)
    seconds: Counter[str] = Counter()
    for line in done.stdout.splitlines():
        one = json.loads(line)
        texts[one["peer"]][one["name"]] = one["text"]
        seconds[one["peer"]] += one["seconds"]
    true = {case.name: case.text for case in known}
    return {
        peer: Result(
            {name: word_f1(true[name], text) for name, text in found.items()}, 1000 * seconds[peer] / len(known)
        )
        for peer, found in texts.items()
    }
