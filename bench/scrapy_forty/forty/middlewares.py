"""Middlewares of both kinds."""

from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse


class Marks:
    """Sets headers and meta, answers one page itself, ignores another."""

    @classmethod
    def from_crawler(cls, crawler):
        made = cls()
        made.stats = crawler.stats
        return made

    def process_request(self, request, spider):
        request.headers["X-Own-Mark"] = spider.name
        request.meta["marked"] = getattr(request.callback, "__name__", "none")
        if request.url.endswith("/ware/2"):
            return HtmlResponse(request.url, body=b"<h1>made here</h1>", encoding="utf-8", request=request)
        if request.url.endswith("/ware/3"):
            raise IgnoreRequest("not this one")

    def process_response(self, request, response, spider):
        self.stats.inc_value(f"forty/answered/{response.status}")
        if response.status == 404 and not request.meta.get("second"):
            return request.replace(url=request.url.replace("missing", "ware"), meta={**request.meta, "second": True})
        return response


class Deepens:
    """A spider middleware: adds to items, filters requests, recovers from an exception."""

    def process_spider_input(self, response, spider):
        response.meta["seen_by"] = "Deepens"

    async def process_spider_output(self, response, result, spider):
        async for entry in result:
            if isinstance(entry, Request):
                if "skip" not in entry.url:
                    yield entry
            else:
                yield {**entry, "seen_by": response.meta["seen_by"]}

    def process_spider_exception(self, response, exception, spider):
        return [{"sku": "0", "recovered": str(exception)}]

    async def process_start(self, start):
        async for entry in start:
            yield entry
        yield Request("http://shop.example/ware/11")


class AsyncOnly:
    async def process_spider_output(self, response, result, spider):
        async for entry in result:
            yield entry


class ByApi:
    """Asks an API for the page, as middlewares of scraping services do."""

    def process_request(self, request, spider):
        if "api.example" not in request.url:
            return request.replace(
                url="http://api.example/mirror", method="POST", body=f"url={request.url}", dont_filter=True
            )
