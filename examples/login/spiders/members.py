from gossamer import Item, Money, Page, Results, Spider


class MemberPrice(Item, key="sku"):
    sku: str
    title: str
    price: Money


class Members(Spider):
    start_urls = ["http://shop.localhost:8460/members"]
    session = "member"  # its cookies are kept, and shared by all workers

    async def login(self, session):
        page = await session.get("http://shop.localhost:8460/members/login")
        await session.submit(page.form("form.login"), user="ada", password=self.secret("SHOP_PASSWORD"))

    def logged_out(self, page: Page) -> bool:
        return bool(page.css("form.login"))

    def parse(self, page: Page) -> Results:
        for row in page.css(".members tr"):
            yield MemberPrice(
                sku=row.css(".sku::text").get(),
                title=row.css(".name::text").get(),
                price=Money.parse(row.css(".price::text").get()),
            )
