"""A crawl of the four hosts of site.py, under the name that deploy/README.md gives to its schedule."""

from gossamer import Item, Page, Spider


class Thing(Item, key="url"):
    title: str
    price: str


class Quotes(Spider):
    site: str = "site"  # an argument: each test has a site of its own

    def start(self):
        yield from (f"http://{self.site}-{letter}/" for letter in "abcd")

    def parse(self, page: Page):
        for link in page.css("a.p"):
            yield page.follow(link, self.thing)

    def thing(self, page: Page):
        if page.css(".heavy").get():
            _ = [bytearray(b"x" * 2**20) for _ in range(3000)]  # more than a worker may have
        yield Thing(url=page.url, title=page.css("h1::text").get(), price=page.css(".price::text").get())
