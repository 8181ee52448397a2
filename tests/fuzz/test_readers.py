"""What strangers write makes no reader fail, and takes it time and memory in proportion to its length.

A short walk here; `make fuzz` walks on for as long as it is told, and keeps what it found in .hypothesis.
"""

from __future__ import annotations

import time
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gossamer.errors import GossamerError

from .readers import READERS, Reader

LONG = 30_000  # bytes
SECONDS = 10.0  # of this thread's own time for LONG bytes; quadratic readers need minutes
MEMORY = 200_000_000  # bytes


def inputs(reader: Reader) -> st.SearchStrategy[bytes]:
    """Words of the reader's language in any order, with noise between them."""
    words = st.sampled_from(reader.words).map(lambda word: word.encode("utf-8", "surrogatepass"))
    noise = st.one_of(
        st.text(max_size=8).map(lambda text: text.encode("utf-8", "surrogatepass")), st.binary(max_size=8)
    )
    return st.lists(st.one_of(words, words, noise), max_size=30).map(b"".join)


def accepts_anything(reader: Reader, data: bytes) -> None:
    with suppress(GossamerError):
        reader.read(data)


def takes_its_share(reader: Reader, piece: bytes) -> None:
    data = (piece or b"a") * (LONG // max(len(piece), 1))
    tracemalloc.start()
    began = time.thread_time()
    try:
        accepts_anything(reader, data)
        spent, (_, peak) = time.thread_time() - began, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert spent < SECONDS, (piece, spent)
    assert peak < MEMORY, (piece, peak)


def walk(name: str, examples: int, *, derandomize: bool) -> None:
    """Try so many inputs, and some of them repeated to a great length."""
    reader = READERS[name]
    calm = {"deadline": None, "derandomize": derandomize, "suppress_health_check": list(HealthCheck)}

    @settings(max_examples=examples, database=None if derandomize else settings.default.database, **calm)
    @given(inputs(reader))
    def anything(data: bytes) -> None:
        accepts_anything(reader, data)

    @settings(max_examples=max(examples // 20, 3), database=None if derandomize else settings.default.database, **calm)
    @given(inputs(reader))
    def at_length(data: bytes) -> None:
        takes_its_share(reader, data)

    anything()
    at_length()


@pytest.mark.parametrize("name", READERS)
def test_a_reader_fails_on_nothing(name: str) -> None:
    walk(name, 60, derandomize=True)


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
def test_each_word_of_a_language_may_be_repeated_without_end(name: str) -> None:
    for word in READERS[name].words:
        takes_its_share(READERS[name], word.encode("utf-8", "surrogatepass"))
