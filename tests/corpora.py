"""Published sets of pages, addresses and files with known answers. They lie beside the repository, or nowhere.

A test that needs one asks here, and is skipped where it is missing: pytest says so in one line for each set.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from quality.corpora import CORPORA


def corpus(name: str, *parts: str) -> Path:
    """A file or folder of that set."""
    folder = CORPORA / name
    if not folder.is_dir():
        pytest.skip(f"the corpus {name} is not beside the repository (../shared/corpora/{name})")
    return folder.joinpath(*parts)
