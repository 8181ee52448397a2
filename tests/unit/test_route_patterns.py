"""Which pages of a site are alike, as far as routes go, and what pages inherit from others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gossamer.routing.contract import LearnedRoute
from gossamer.routing.site_memory import agree, known_for, pattern_of

SHELL = LearnedRoute(site="shop.example", route="browser", since=1.0, reason="shell")


@pytest.mark.parametrize(
    ("url", "pattern"),
    [
        ("https://shop.example/", "shop.example/"),
        ("https://shop.example", "shop.example"),
        ("https://shop.example/p/17", "shop.example/p/*"),
        ("https://SHOP.example/p/red-lamp?page=3&x=1#top", "shop.example/p/*?page&x"),
        ("https://shop.example/p/red/lamp.html", "shop.example/p/*/*.html"),
        ("https://shop.example/p/red/", "shop.example/p/*/"),
        ("https://shop.example/2027/01/a-day", "shop.example/0/*/*"),
        ("https://img.shop.example/a/b/c.PNG", "img.shop.example/a/*/*.png"),
        ("https://shop.example/feed.xml", "shop.example/*.xml"),
        ("https://shop.example/v1.2-of-it", "shop.example/*"),
    ],
)
def test_names_and_numbers_below_the_first_folder_are_one(url, pattern):
    assert pattern_of(url) == pattern


def test_a_pattern_of_a_hostile_address_is_bounded():
    assert len(pattern_of("https://shop.example/" + "a" * 100_000 + "/" * 10_000 + "?" + "&".join("abc" * 999))) <= 200


def test_a_page_has_its_own_row_or_that_of_the_site_and_files_are_not_made_by_scripts():
    pages = replace(SHELL, pattern="shop.example/p/*")
    whole, walled = replace(SHELL, pattern=""), replace(SHELL, pattern="", reason="challenge")

    assert known_for([pages], "shop.example/p/*") == pages
    assert known_for([pages], "shop.example/img/*.png") is None
    assert known_for([whole, pages], "shop.example/q/*") == whole
    assert known_for([whole, pages], "shop.example/q/*.php") == whole
    for file in ("shop.example/img/*.png", "shop.example/*.xml", "shop.example/api/*.json?id"):
        assert known_for([whole, pages], file) is None
        assert known_for([walled, pages], file) == walled  # who asks is the same for every file


def test_several_patterns_that_agree_speak_for_the_site():
    rows = [replace(SHELL, pattern=f"shop.example/{name}/*") for name in "abc"]
    assert not agree(rows[:2], "browser")
    assert agree(rows, "browser")
    assert not agree([*rows[:2], replace(rows[2], route="managed")], "browser")
    assert not agree([*rows, replace(SHELL, pattern="")], "browser")  # it is written already
