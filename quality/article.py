"""How well articles are found: our text beside the true one, for every page of the article-extraction set.

The measure is the set's own. Texts are cut into words, words into runs of four; runs that both texts have are right,
runs that only ours has are wrong, runs that only the true one has are missing. Precision and recall are averages
over pages, F1 is made of the two averages.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from gossamer.extract.article import main_text
from gossamer.parse.page import Page

from .corpora import CORPORA, kept_aside, page_of

SET = CORPORA / "article-extraction"
PUBLISHED = {"go-trafilatura": 0.960, "readability.js": 0.947, "readability-lxml": 0.922, "all text (bs4)": 0.665}
_WORD = re.compile(r"\w+")
_RUN = 4


class Case(NamedTuple):
    """A page and the text of its article."""

    name: str
    page: Page
    text: str


class Match(NamedTuple):
    """The shares of runs of words that are right, wrong and missing."""

    right: float
    wrong: float
    missing: float


class Score(NamedTuple):
    f1: float
    precision: float
    recall: float


def report() -> list[str]:
    """The lines of a table: ours beside what others published, and how long a page takes."""
    if not SET.is_dir():
        return [f"article extraction: the pages are not on this machine ({SET})"]
    found = list(cases())
    score, milliseconds = measure(found, main_text)
    aside, _ = measure([case for case in found if kept_aside(case.name)], main_text)
    plain, _ = measure(found, lambda page: page.tree.main_text() if page.tree is not None else "")
    size = sum(len(case.page.body) for case in found) / len(found) / 1000
    return [
        f"article extraction: {len(found)} pages of {size:.0f} KB on average; the published figures are for 181 pages",
        f"{'':24}{'F1':>8}{'precision':>11}{'recall':>8}{'ms/page':>9}",
        f"{'gossamer':24}{score.f1:8.3f}{score.precision:11.3f}{score.recall:8.3f}{milliseconds:9.1f}",
        f"{'gossamer, kept aside':24}{aside.f1:8.3f}{aside.precision:11.3f}{aside.recall:8.3f}",
        *(f"{name:24}{f1:8.3f}{'':>11}{'':>8}{'':>9}".rstrip() for name, f1 in PUBLISHED.items()),
        f"{'turbohtml alone':24}{plain.f1:8.3f}{plain.precision:11.3f}{plain.recall:8.3f}",
    ]


def cases(every: int = 1) -> Iterable[Case]:
    """The pages of the set, in the order of their names; `every=3` takes each third of them."""
    truth = json.loads((SET / "ground-truth.json").read_text(encoding="utf-8"))
    for name in sorted(truth)[::every]:
        yield Case(name, page_of("article-extraction", name, truth[name]["url"]), truth[name]["articleBody"])


def measure(found: Iterable[Case], extract: Callable[[Page], str]) -> tuple[Score, float]:
    """The score of a way to find texts, and its milliseconds per page; parsing the page is not counted."""
    matches, seconds = [], 0.0
    for case in found:
        _ = case.page.tree
        began = time.perf_counter()
        text = extract(case.page)
        seconds += time.perf_counter() - began
        matches.append(compare(case.text, text))
    return score_of(matches), 1000 * seconds / len(matches)


def compare(true: str, ours: str) -> Match:
    wanted, found = _runs(true), _runs(ours)
    right, wrong, missing = ((wanted & found).total(), (found - wanted).total(), (wanted - found).total())
    total = right + wrong + missing
    return Match(right / total, wrong / total, missing / total)


def score_of(matches: Iterable[Match]) -> Score:
    matches = list(matches)
    precisions = [one.right / (one.right + one.wrong) for one in matches if one.right + one.wrong > 0]
    recalls = [one.right / (one.right + one.missing) for one in matches if one.right + one.missing > 0]
    precision, recall = sum(precisions) / len(precisions), sum(recalls) / len(recalls)
    return Score(2 * precision * recall / (precision + recall) if precision + recall else 0.0, precision, recall)


def _runs(text: str) -> Counter[tuple[str, ...]]:
    words = _WORD.findall(text)
    return Counter(tuple(words[at : at + _RUN]) for at in range(max(1, len(words) - _RUN + 1)))
