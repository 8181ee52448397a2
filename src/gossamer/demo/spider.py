"""The spider that crawls the demo shop. Your own spiders look just like this one.

Run it with `gossamer demo`, or serve the shop yourself (`python -m gossamer.demo`) and crawl it with any command.
"""

from __future__ import annotations

from gossamer import Item, Money, Page, Results, Spider


class Product(Item, key="sku"):
    """One thing on sale. Fields without a default are required: a page that lacks one is a parse failure."""

    sku: str
    title: str
    brand: str
    availability: str
    price: Money | None = None  # "on request"
    rating: float | None = None
    reviews: int = 0


class DemoShop(Spider):
    start_urls = ["http://shop.localhost:8460/"]
    allowed_domains = ["shop.localhost", "outlet.localhost"]

    def parse(self, page: Page) -> Results:
        """The home page: follow the listings, and the products that it features."""
        yield from page.follow_all(".tiles a, .hero a, a.outlet, footer a", self.listing)
        yield from page.follow_all(".press a", self.product, priority=8)

    def listing(self, page: Page) -> Results:
        """A page of the catalogue: its products first, then the next page, which is parsed like this one."""
        yield from page.follow_all(".shelf a, .gone a", self.product, priority=8)
        yield from page.follow_all("a.next")

    def product(self, page: Page) -> Results:
        facts = page.css(".product .facts")
        rating = facts.css(".score::text").get()
        yield Product(
            url=page.url,
            sku=facts.css(".sku::text").get(),
            title=facts.css("h1::text").get(),
            brand=facts.css(".brand::text").get(),
            availability=facts.css(".stock::text").get(),
            price=Money.parse(facts.css(".price::text").get()),
            rating=float(rating) if rating else None,
            reviews=int(facts.css(".reviews::text").get("0")),
        )
