from gossamer import Item, Page, Render, Request, Results, Spider


class Ware(Item, key="sku"):
    sku: str
    title: str
    price: str


class Window(Spider):
    def start(self):
        rendered = Render(wait_for="[data-state=complete]")  # the script says when it has loaded everything
        yield Request(url="http://shop.localhost:8460/window", fetcher="browser", render=rendered)

    def parse(self, page: Page) -> Results:
        for ware in page.css(".ware"):
            yield Ware(
                sku=ware.css(".sku::text").get(),
                title=ware.css("b::text").get(),
                price=ware.css(".price::text").get(),
            )
