from gossamer import File, Item, Page, Results, Spider


class Picture(Item, key="title"):
    title: str
    picture: File


class Lookbook(Spider):
    start_urls = ["http://shop.localhost:8460/lookbook"]

    def parse(self, page: Page) -> Results:
        for figure in page.css("figure"):
            yield Picture(
                title=figure.css("figcaption::text").get(),
                picture=page.file(figure.css("img::attr(src)").get(), types=["image/*"], max_size=1_000_000),
            )
