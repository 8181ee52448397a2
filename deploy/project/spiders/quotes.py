"""An example: the quotes of a site that was made for practice."""

from gossamer import Item, Page, Spider


class Quote(Item, key=("author", "text")):
    author: str
    text: str


class Quotes(Spider):
    start_urls = ["https://quotes.toscrape.com/"]

    def parse(self, page: Page):
        for quote in page.css(".quote"):
            yield Quote(url=page.url, author=quote.css(".author::text").get(), text=quote.css(".text::text").get())
        yield from page.follow_all("li.next a")
