"""Recipe files as spiders. Each state of a file is made into a class once."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from ...errors import MissingExtra
from .faults import BadRecipe, Fault
from .reading import read_recipe
from .spider import RecipeSpider, spider_of
from .text import MAX_BYTES


def load_recipe(path: Path, shown: str) -> type[RecipeSpider]:
    """The spider of a recipe file; `shown` is how messages call the file. Raises BadRecipe, MissingExtra.

    Whatever else goes wrong with a file is a BadRecipe too: one bad file must not stop the commands of a project.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        size = path.stat().st_size
    except OSError as error:
        raise BadRecipe(shown, [Fault(None, f"It cannot be read ({error.strerror}).")]) from error
    if len(content) > MAX_BYTES:
        told = f"It has {size / 1024:,.0f} KB; a recipe may have {MAX_BYTES // 1024} KB at most."
        raise BadRecipe(shown, [Fault(None, told)])
    try:
        return _made(content, shown)
    except (BadRecipe, MissingExtra):
        raise
    except Exception as error:
        told = f"It cannot be read ({type(error).__name__}: {' '.join(str(error).split())[:200]})."
        raise BadRecipe(shown, [Fault(None, told)]) from error


@lru_cache(maxsize=256)
def _made(content: bytes, shown: str) -> type[RecipeSpider]:
    return spider_of(read_recipe(content, shown))
