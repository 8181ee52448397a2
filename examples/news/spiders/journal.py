from gossamer import Item, Page, Results, Spider


class Story(Item, key="url"):
    title: str
    text: str
    published: str | None = None
    authors: list[str] = []


class Journal(Spider):
    start_urls = ["http://shop.localhost:8460/journal.xml"]

    def parse(self, page: Page) -> Results:
        for entry in page.feed().entries:
            yield page.follow(entry.url, self.story)

    def story(self, page: Page) -> Results:
        article = page.article()
        yield Story(
            url=page.url,
            title=article.title,
            text=article.text,
            published=str(article.published or "") or None,
            authors=list(article.authors),
        )
