"""The texts that other extractors find. Runs in their own environment: `python peer_texts.py FOLDER NAME...`.

Prints one JSON line per page and extractor that is installed: peer, name, text, seconds of CPU. A page that makes an
extractor raise counts as one where it found nothing.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path


def _trafilatura(body: bytes) -> str:
    """With the options that its published figures were measured with."""
    import trafilatura

    found = trafilatura.bare_extraction(body.decode("utf-8", "replace"), include_comments=False, include_tables=True)
    return (found.text or "") if found is not None else ""


def _trafilatura_recall(body: bytes) -> str:
    import trafilatura

    return trafilatura.extract(body, favor_recall=True) or ""


def _readability(body: bytes) -> str:
    import lxml.html
    from readability import Document

    summary = Document(body.decode("utf-8", "replace")).summary()
    return "\n".join(lxml.html.fromstring(summary).itertext())


EXTRACTORS: dict[str, tuple[str, Callable[[bytes], str]]] = {
    "trafilatura": ("trafilatura", _trafilatura),
    "trafilatura, recall": ("trafilatura", _trafilatura_recall),
    "readability-lxml": ("readability", _readability),
}


def main(folder: Path, names: list[str]) -> None:
    logging.disable(logging.CRITICAL)
    for peer, (module, extract) in EXTRACTORS.items():
        if importlib.util.find_spec(module) is None:
            continue
        for name in names:
            body = gzip.decompress((folder / f"{name}.html.gz").read_bytes())
            began = time.thread_time()
            try:
                text = extract(body)
            except Exception:  # theirs to fail: the score says so
                text = ""
            seconds = time.thread_time() - began
            print(json.dumps({"peer": peer, "name": name, "text": text, "seconds": seconds}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
