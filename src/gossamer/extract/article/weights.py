"""The weights of traits, as weights.json has them: for paragraphs that are content, and for every kind of page.

`python -m quality.fit` learns them and writes the file. A trait without a weight counts nothing.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import msgspec


class Weights(msgspec.Struct, frozen=True):
    """`bias` is what counts without any trait; `of` has the weight of every trait by its name."""

    bias: float
    of: dict[str, float]


class _File(msgspec.Struct, frozen=True):
    content: Weights
    kinds: dict[str, Weights]


FILE = Path(__file__).with_name("weights.json")


def _open(weights: Weights) -> Weights:
    return Weights(weights.bias, defaultdict(float, weights.of))


_FILE = msgspec.json.decode(FILE.read_bytes(), type=_File)
CONTENT = _open(_FILE.content)
KINDS = {kind: _open(weights) for kind, weights in _FILE.kinds.items()}
