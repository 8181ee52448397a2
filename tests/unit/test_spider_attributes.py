"""Attributes of a spider that nobody reads are told; those of the user's own are not."""

from __future__ import annotations

from gossamer import Spider
from gossamer.parse.arguments import unread_attributes
from gossamer.parse.site import SiteSpider


def told(**attributes: object) -> list[str]:
    return unread_attributes(type("Books", (Spider,), attributes)())


def test_words_of_scrapy_and_near_misses_get_advice():
    assert told(custom_settings={"A": 1}, user_agent="me", start_url="https://books.example/", DOWNLOAD_DELAY=2) == [
        "Books.custom_settings has no effect. Write rate, site_concurrency, limit ... as attributes, and everything "
        "else in gossamer.toml.",
        "Books.user_agent has no effect. Set fetch.user_agent in gossamer.toml.",
        "Books.start_url has no effect. Did you mean start_urls?",
        'Books.DOWNLOAD_DELAY has no effect. Write rate = "1/s".',
    ]
    assert told(allowed_domain="books.example") == ["Books.allowed_domain has no effect. Did you mean allowed_domains?"]
    assert told(start_requests=lambda self: []) == [
        "Books.start_requests has no effect. Call it start: def start(self)."
    ]


def test_attributes_of_the_users_own_are_left_alone():
    own = {"names": ["a", "b"], "limits": {"a": 1}, "seen": set(), "base": "https://books.example", "_rat": 1}
    assert told(rate="5/s", limit=5, parse2=lambda self, page: None, **own) == []
    assert told(start_url="", __annotations__={"start_url": str}) == []  # annotated: an argument
    assert unread_attributes(SiteSpider(["https://books.example/"])) == []


def test_what_the_constructor_sets_counts_too():
    class Books(Spider):
        def __init__(self) -> None:
            self.start_url = "https://books.example/"

    assert unread_attributes(Books()) == ["Books.start_url has no effect. Did you mean start_urls?"]
