"""Stars as pages show them: in texts, in the labels for those who cannot see, in data outside the product."""

from __future__ import annotations

import pytest

from .productpages import json_ld, kettle, offer, read, shop

REST = '<p class="price">5 €</p><button>Add to cart</button>'


@pytest.mark.parametrize(
    ("html", "stars"),
    [
        ('<div role="img" aria-label="4.6 out of 5 stars"></div>', 4.6),
        ('<i class="stars" aria-label="Rated 4.6 out of 5"></i>', 4.6),
        ("<p><span>4.6</span> out of 5 stars</p>", 4.6),
        ("<p><b>4,6</b> <i>von</i> 5 Sternen</p>", 4.6),
        ("<p><b>4.6</b>/<b>5</b></p>", 4.6),
        ('<span class="rating" title="4.6"></span>', 4.6),
        ('<div class="star-rating" data-rating="4.6"></div>', 4.6),
        ('<img src="s.gif" alt="4.6 stars">', 4.6),
        ('<span class="rating">9.2/10</span>', 4.6),
        ("<p>Rating: 9.2 / 10</p>", 4.6),
        ('<div class="rating" title="92%"></div>', 4.6),
        ("<p>4.6 ★ (1.2k reviews)</p>", 4.6),
        ("<p>評価 5段階中4.6</p>", None),
        ('<span class="rating" title="Not yet rated"></span>', None),
        ('<span class="rating" title="7.5"></span>', None),
        ("<p>24/10 is a date, 12/5 too</p>", None),
        ("<p>Step 4 of 5</p>", None),
        ("<p>Step 4 von 5</p>", None),
        ("<p>1.5/5 kg</p>", None),
        ('<div class="starRating">4.6</div>', 4.6),
        ('<div class="review-summary"><b>4.6</b> out of 5</div>', 4.6),
        ('<span class="rating">12</span>', None),
        ('<span class="start" title="4.6"></span>', None),
        ('<div class="related"><i aria-label="4.6 out of 5 stars"></i></div>', None),
        ('<div class="tile"><a href="/o"><img src="o.jpg"></a><i aria-label="4.6 out of 5 stars"></i></div>', None),
        ('<div id="reviews"><div class="review"><i aria-label="2 out of 5 stars"></i>Bad.</div></div>', None),
    ],
)
def test_stars_near_the_title_are_read(html: str, stars: float | None) -> None:
    assert read(shop(html + REST)).rating == stars


@pytest.mark.parametrize(
    ("html", "count"),
    [
        ('<i aria-label="4.6 out of 5 stars"></i><a href="#r">1,234 ratings</a>', 1234),
        ("<p>4.6 out of 5 (1.2k reviews)</p>", 1200),
        ('<i aria-label="4.6 out of 5 stars, 17 reviews"></i>', 17),
    ],
)
def test_count_beside_the_stars_is_read(html: str, count: int) -> None:
    assert read(shop(html + REST)).review_count == count


def test_stars_before_the_price_are_taken_and_not_those_of_a_single_review() -> None:
    own = '<i aria-label="4.6 out of 5 stars"></i>'
    single = '<div class="customer-review"><i aria-label="1 out of 5 stars"></i>Leaks.</div>'
    assert read(shop(own + REST + single)).rating == 4.6


def test_rating_outside_the_product_s_scope_is_the_product_s() -> None:
    scope = '<div itemscope itemtype="https://schema.org/AggregateRating">'
    marks = '<meta itemprop="ratingValue" content="4.6"><meta itemprop="reviewCount" content="31"></div>'
    product = read(shop(scope + marks + REST))
    assert (product.rating, product.review_count) == (4.6, 31)


def test_rating_of_the_shop_is_not_the_product_s() -> None:
    stars = {"@type": "AggregateRating", "ratingValue": 4.9, "reviewCount": 9000}
    company = {"@type": "Organization", "name": "Shop", "aggregateRating": stars}
    about = {**stars, "itemReviewed": {"@type": "Organization", "name": "Shop"}}
    assert read(json_ld(kettle(offers=offer("5.00")), company, about)).rating is None


def test_several_loose_ratings_that_differ_say_nothing() -> None:
    ratings = [{"@type": "AggregateRating", "ratingValue": value} for value in (3, 4)]
    assert read(json_ld(kettle(offers=offer("5.00")), *ratings)).rating is None
