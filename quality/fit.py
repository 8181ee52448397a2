"""`python -m quality.fit` learns the weights of traits from pages whose content and kind are known, and writes them.

Paragraphs: those whose words stand in the true text are content, copies as often as they stand there; the weight of
each trait is found by logistic regression, small steps over all paragraphs in an order that is always the same. Pages
count alike, and so do the words of a page. Kinds: the same for every page, one weight per kind and trait. The third of
the pages that is kept aside is not read. Takes a few minutes.
"""

from __future__ import annotations

import json
import random
import re
import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from math import exp, sqrt
from typing import NamedTuple

from gossamer.extract.article.article import survey_of
from gossamer.extract.article.kind import FILE, page_traits
from gossamer.extract.article.kind import NAMES as PAGE_NAMES
from gossamer.extract.article.traits import NAMES, traits_of
from gossamer.parse.page import Page

from . import article, content
from .corpora import kept_aside

_WORD = re.compile(r"\w+")
_RUN = 3  # words; a paragraph most of whose runs are in the true text is content
_NEAR = 6  # paragraphs between a few words that are content and a long paragraph that surely is
_ROUNDS, _KIND_ROUNDS = 12, 30
_PAGE = 15.0  # what all paragraphs of a page count together
_PULL, _KIND_PULL = 2e-5, 4e-2  # towards no weight at all: traits that help little get none


class Example(NamedTuple):
    """Traits, whether they are those of content (or the number of the kind), and how much the example counts."""

    traits: list[int]
    answer: int
    weight: float


def main() -> None:
    pages: list[tuple[Page, str, str]] = [
        (case.page(), case.type, case.text) for case in content.cases() if not kept_aside(case.name)
    ]
    pages += [(case.page, "article", case.text) for case in article.cases() if not kept_aside(case.name)]
    kinds = sorted({kind for _, kind, _ in pages})
    paragraphs: list[Example] = []
    whole_pages: list[Example] = []
    for page, kind, text in pages:
        survey = survey_of(page)
        if survey is None or page.tree is None or not survey.lines:
            continue
        nothing = bytes(len(survey.outline.elements))
        words = [_WORD.findall(line.text(nothing).lower()) for line in survey.lines]
        answers = answers_of(text, words)
        whole = sum(len(some) + 2 for some in words)
        common = survey.common_traits()
        for traits, answer, some in zip(traits_of(survey), answers, words, strict=True):
            paragraphs.append(Example(common + traits, answer, _PAGE * (len(some) + 2) / whole))
        whole_pages.append(Example(page_traits(page, page.tree, survey), kinds.index(kind), 1.0))
    print(f"{len(pages)} pages, {len(paragraphs)} paragraphs", file=sys.stderr)
    (weights,) = learn(paragraphs, len(NAMES), 1, _ROUNDS, _PULL)
    by_kind = learn(whole_pages, len(PAGE_NAMES), len(kinds), _KIND_ROUNDS, _KIND_PULL)
    written = {
        "content": _written(weights, NAMES),
        "kinds": {kind: _written(some, PAGE_NAMES) for kind, some in zip(kinds, by_kind, strict=True)},
    }
    FILE.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def answers_of(true: str, words: Sequence[Sequence[str]]) -> list[int]:
    """1 for every paragraph, given as its words, that stands in the true text, and 0 for the others.

    Of copies as many count as the true text has, those beside other content first. A few words stand in many places of
    a page: they count where the true text has a line of just these, or near a long paragraph that counts, and as often
    as the true text has them.
    """
    all_words = _WORD.findall(true.lower())
    runs = {tuple(all_words[at : at + size]) for size in (1, 2, _RUN) for at in range(len(all_words) - size + 1)}
    lines = {tuple(_WORD.findall(line)) for line in true.lower().split("\n")}
    answers = [0] * len(words)
    for at in _long_content(_spaced(all_words), runs, words):
        answers[at] = 1
    sure = [at for at, answer in enumerate(answers) if answer]
    left = Counter(all_words)
    left.subtract(word for at in sure for word in words[at])
    few = [
        (tuple(some) not in lines, _distance(sure, at), at)
        for at, some in enumerate(words)
        if 0 < len(some) <= _RUN and tuple(some) in runs
    ]
    for alone, distance, at in sorted(few):
        if (distance <= _NEAR or not alone) and all(left[word] > 0 for word in words[at]):
            answers[at] = 1
            left.subtract(words[at])
    return answers


def _long_content(true: str, runs: set[tuple[str, ...]], words: Sequence[Sequence[str]]) -> list[int]:
    """The paragraphs of more than a few words that stand in the true text."""
    found = defaultdict(list)
    for at, some in enumerate(words):
        own = [tuple(some[start : start + _RUN]) for start in range(len(some) - _RUN + 1)]
        if len(some) > _RUN and sum(run in runs for run in own) >= 0.6 * len(own):
            found[tuple(some)].append(at)
    single = [places[0] for places in found.values() if len(places) == 1]
    chosen = single[:]
    for some, places in found.items():
        if len(places) > 1:
            places.sort(key=lambda at: (min(_distance(single, at), 10 * _NEAR) // _NEAR, at))
            chosen += places[: max(1, true.count(_spaced(some)))]
    return chosen


def _spaced(words: Sequence[str]) -> str:
    """The words with space of their own on both sides, so that a run is found in a text only as whole words."""
    return "".join(f" {word} " for word in words)


def _distance(sure: list[int], at: int) -> int:
    """How far the nearest of `sure`, which are in order, is from `at`."""
    after = bisect_left(sure, at)
    return min((abs(sure[near] - at) for near in (after - 1, after) if 0 <= near < len(sure)), default=999)


def learn(examples: list[Example], size: int, classes: int, rounds: int, pull: float) -> list[list[float]]:
    """Logistic regression: for every class the weights of the traits, and the bias behind them.

    With one class the answer is yes or no; with several it is the number of the class.
    """
    weights = [[0.0] * (size + 1) for _ in range(classes)]
    slopes = [[1e-6] * (size + 1) for _ in range(classes)]
    order = list(range(len(examples)))
    chance = random.Random(1)
    for _ in range(rounds):
        chance.shuffle(order)
        for at in order:
            traits, answer, counts = examples[at]
            sums = [row[size] + sum([row[trait] for trait in traits]) for row in weights]
            if classes == 1:
                errors = [(1 / (1 + exp(-max(-30.0, min(30.0, sums[0])))) - answer) * counts]
            else:
                most = max(sums)
                shares = [exp(one - most) for one in sums]
                whole = sum(shares)
                errors = [(share / whole - (number == answer)) * counts for number, share in enumerate(shares)]
            for row, slope, error in zip(weights, slopes, errors, strict=True):
                for trait in (*traits, size):
                    step = error + pull * row[trait]
                    slope[trait] += step * step
                    row[trait] -= 0.1 * step / sqrt(slope[trait])
    return weights


def _written(weights: list[float], names: Sequence[str]) -> dict[str, object]:
    given = {name: round(weight, 2) for name, weight in zip(names, weights, strict=False)}
    return {"bias": round(weights[-1], 2), "of": {name: weight for name, weight in given.items() if weight}}


if __name__ == "__main__":
    main()
