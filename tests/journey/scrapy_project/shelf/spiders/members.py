import os

import scrapy
from scrapy.http import FormRequest, JsonRequest

SITE = os.environ.get("SHELF_SITE", "http://127.0.0.1:8000")


class MembersSpider(scrapy.Spider):
    """A login, as Scrapy's manual has it. Members' pages need the cookie of the login."""

    name = "members"
    start_urls = [f"{SITE}/login"]

    def parse(self, response):
        return FormRequest.from_response(response, formdata={"user": "ada", "password": "sesame"}, callback=self.login)

    def login(self, response):
        if "refused" in response.text:
            self.logger.error("Login failed")
            return
        for number in range(1, 21):
            yield scrapy.Request(f"{SITE}/members/{number}", self.member)

    def member(self, response):
        yield {"member": response.css("h1::text").get(), "page": response.url}


class StockSpider(scrapy.Spider):
    """A JSON API: pages by GET, details by POST; callbacks are coroutines."""

    name = "stock"

    async def start(self):
        yield scrapy.Request(f"{SITE}/api/stock?page=1", self.page)

    async def page(self, response):
        answer = response.json()
        for name in answer["names"]:
            yield JsonRequest(f"{SITE}/api/count", data={"name": name}, callback=self.count, cb_kwargs={"name": name})
        if answer["next"]:
            yield response.follow(answer["next"], self.page)

    async def count(self, response, name):
        return [{"name": name, "count": response.json()["count"]}]
