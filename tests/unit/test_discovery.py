"""Finding spiders in files; files that do not load cost one line each."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gossamer.errors import SpiderNotFound
from gossamer.parse.discovery import list_spiders, load_spider
from gossamer.parse.spider import spider_version

HEAD = "from gossamer.parse.spider import Spider\n"
BOOKS = HEAD + 'class Books(Spider):\n    """Reads books.\n\n    All of them."""\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "spiders").mkdir()
    return tmp_path


def write(root: Path, name: str, text: str) -> Path:
    path = root / "spiders" / name
    path.write_text(text, encoding="utf-8")
    return path


def refusal(ref: str, root: Path) -> str:
    with pytest.raises(SpiderNotFound) as caught:
        load_spider(ref, root, "spiders")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_spider_is_found_by_name(root: Path) -> None:
    write(root, "shop.py", BOOKS + "class Toys(Spider):\n    name = 'toy-shop'\n")
    assert load_spider("books", root, "spiders").__name__ == "Books"
    assert load_spider("toy-shop", root, "spiders").__name__ == "Toys"


def test_a_file_that_was_mended_within_a_second_is_read_anew(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for moment, word in ((0, "one"), (1, "two")):
        path = write(root, "books.py", f"{BOOKS}    word = '{word}'\n")
        os.utime(path, ns=(moment, 1_700_000_000_000_000_000 + moment))
        assert vars(load_spider("books", root, "spiders"))["word"] == word
    assert not (root / "spiders" / "__pycache__").exists()


def test_spider_is_found_by_file_and_class(root: Path) -> None:
    write(root, "one.py", BOOKS)
    write(root, "two.py", BOOKS + "class Toys(Spider): pass\n")
    assert load_spider("spiders/one.py", root, "spiders").__name__ == "Books"
    assert load_spider(str(root / "spiders/two.py:Toys"), root, "spiders").__name__ == "Toys"
    assert "Say which: two.py:Books" in refusal("spiders/two.py", root)
    assert "Did you mean Toys?" in refusal("spiders/two.py:Toy", root)


def test_unknown_name_gets_a_suggestion_and_the_list(root: Path) -> None:
    write(root, "shop.py", BOOKS + "class Toys(Spider): pass\n")
    message = refusal("boks", root)
    assert "Did you mean 'books'?" in message
    assert "There are: books, toys." in message


def test_empty_or_absent_folder_says_how_to_begin(root: Path) -> None:
    assert "gossamer new" in refusal("books", root)
    assert "gossamer new" in refusal("books", root / "nowhere")


def test_absent_file_gets_a_suggestion(root: Path) -> None:
    write(root, "books.py", BOOKS)
    assert "Did you mean" in refusal("spiders/book.py", root)
    assert "books.py" in refusal("spiders/book.py", root)


def test_file_without_a_spider_says_so(root: Path) -> None:
    write(root, "empty.py", "x = 1\n")
    assert "holds no spider" in refusal("spiders/empty.py", root)


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("x = 1\ndef broken(:\n", "line 2", "syntax error"),
        ("import nothing_of_that_name\n", "line 1", "ModuleNotFoundError"),
        ("\n\nx = 1 / 0\n", "line 3", "ZeroDivisionError"),
        ("import sys\nsys.exit(2)\n", "line 2", "SystemExit"),
        (
            "from gossamer.model.item import Item\nclass A(Item, key='b'):\n    a: str\n",
            "line 2",
            "the key 'b' is not one of its fields",
        ),
    ],
)
def test_file_that_does_not_load_is_told_with_its_line(root: Path, text: str, line: str, told: str) -> None:
    path = write(root, "broken.py", text)
    for ref in ("books", "spiders/broken.py"):
        message = refusal(ref, root)
        assert str(path) in message
        assert line in message
        assert told in message


def test_bytes_that_are_no_source_are_told(root: Path) -> None:
    (root / "spiders/nul.py").write_bytes(b"x = '\x00\xff'\n")
    assert "nul.py" in refusal("spiders/nul.py", root)


def test_broken_file_does_not_hide_the_others(root: Path) -> None:
    write(root, "a_broken.py", "def (:\n")
    write(root, "shop.py", BOOKS)
    assert load_spider("books", root, "spiders").__name__ == "Books"
    catalogue = list_spiders(root, "spiders")
    assert [(spec.name, spec.summary) for spec in catalogue.spiders] == [("books", "Reads books.")]
    [broken] = catalogue.broken
    assert (broken.path.name, broken.line) == ("a_broken.py", 1)


def test_same_name_twice_names_both_places(root: Path) -> None:
    write(root, "one.py", BOOKS)
    write(root, "two.py", BOOKS)
    message = refusal("books", root)
    assert "one.py:Books" in message
    assert "two.py:Books" in message


def test_imported_base_classes_are_not_listed_twice(root: Path) -> None:
    write(root, "base_shop.py", BOOKS)
    write(root, "child.py", "from base_shop import Books\nclass Child(Books): pass\n")
    assert [spec.name for spec in list_spiders(root, "spiders").spiders] == ["books", "child"]


def test_private_files_and_classes_are_left_out(root: Path) -> None:
    write(root, "_shared.py", BOOKS)
    write(root, "shop.py", HEAD + "class _Base(Spider): pass\nclass Shop(_Base): pass\n")
    assert [spec.name for spec in list_spiders(root, "spiders").spiders] == ["shop"]


def test_changed_file_is_loaded_anew_and_has_a_new_version(root: Path) -> None:
    # given a spider that was loaded
    write(root, "shop.py", BOOKS)
    before = load_spider("books", root, "spiders")
    version = spider_version(before)
    assert load_spider("books", root, "spiders") is before

    # when its file changes
    write(root, "shop.py", BOOKS + "    limit = 3\n")
    after = load_spider("books", root, "spiders")

    # then the new code is what is run, and it is known to be new
    assert after.limit == 3
    assert spider_version(after) != version


def test_file_with_annotations_as_text_works(root: Path) -> None:
    text = (
        "from __future__ import annotations\nfrom gossamer.model.item import Item, validate\n"
        + BOOKS
        + "class Book(Item):\n    title: str\n    part: Part | None = None\nclass Part(Item):\n    name: str\n"
        + "validate(Book(title='x', part=Part(name='y')))\n"
    )
    write(root, "late.py", text)
    assert load_spider("books", root, "spiders").__name__ == "Books"


def test_the_name_of_a_file_leads_to_what_is_in_it_or_why_it_does_not_load(root: Path) -> None:
    write(root, "lamps.py", BOOKS)
    write(root, "rugs.py", "class Rugs(Spider)\n    pass\n")
    assert refusal("lamps", root) == "There is no spider 'lamps'; the file of that name holds 'books'."
    assert refusal("rugs", root).startswith(f"This file does not load: {root}/spiders/rugs.py, line 1: syntax error")
