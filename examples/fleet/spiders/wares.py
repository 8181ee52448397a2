from gossamer import Item, Money, Page, Results, Spider


class Ware(Item, key="sku"):
    sku: str
    title: str
    price: Money | None = None  # "on request"


class Wares(Spider):
    start_urls = ["http://shop.localhost:8460/category/lighting"]

    def parse(self, page: Page) -> Results:
        yield from page.follow_all(".shelf a", self.ware, priority=8)
        yield from page.follow_all("a.next")

    def ware(self, page: Page) -> Results:
        yield Ware(
            url=page.url,
            sku=page.css(".sku::text").get(),
            title=page.css("h1::text").get(),
            price=Money.parse(page.css(".price::text").get()),
        )
