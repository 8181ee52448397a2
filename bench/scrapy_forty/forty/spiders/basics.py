"""Requests, responses, callbacks and selectors."""

import json

import scrapy
from scrapy.exceptions import CloseSpider
from scrapy.http import FormRequest, JsonRequest
from scrapy.selector import Selector

SHOP = "http://shop.example"


class Base(scrapy.Spider):
    """Of all spiders here; it has no name, so that it is none itself."""

    def item(self, response, **more):
        return {"url": response.url, "title": (response.css("h1::text").get() or "").strip(), **more}


class Plain(Base):
    name = "plain"
    start_urls = [f"{SHOP}/list"]

    def parse(self, response):
        for card in response.css(".card"):
            yield {"sku": card.attrib["data-id"], "name": card.css("a::text").get(), "page": response.url}
        if onward := response.css("a.next::attr(href)").get():
            yield response.follow(onward, self.parse)


class AsyncStart(Base):
    name = "async_start"

    async def start(self):
        for number in (1, 2, 3):
            yield scrapy.Request(f"{SHOP}/ware/{number}", self.parse)

    def parse(self, response):
        return self.item(response)


class ItemsOfStart(Base):
    name = "items_of_start"

    async def start(self):
        yield {"url": "", "title": "before"}
        yield scrapy.Request(f"{SHOP}/ware/1")

    def parse(self, response):
        yield self.item(response)


class Details(Base):
    name = "details"
    start_urls = [f"{SHOP}/list?page=1"]

    def parse(self, response):
        yield from response.follow_all(css=".card a", callback=self.parse_ware, cb_kwargs={"page": response.url})
        yield from response.follow_all(css="a.next")

    def parse_ware(self, response, page):
        rows = {row.xpath("th/text()").get(): row.xpath("td/text()").get() for row in response.xpath("//tr")}
        yield self.item(response, page=page, rows=rows, price=response.css(".price::text").re_first(r"[\d.]+"))


class Meta(Base):
    name = "meta"
    start_urls = [f"{SHOP}/ware/1"]

    def parse(self, response):
        yield response.follow(
            "/ware/2", self.second, meta={"tuple": (1, 2), "set": {3}, "data": response.url}, flags=["f"]
        )

    def second(self, response):
        meta = response.meta
        yield self.item(response, tuple=list(meta["tuple"]), set=list(meta["set"]), data=meta["data"],
                        depth=meta["depth"], flags=response.request.flags, slot=meta["download_slot"])  # fmt: skip


class Errbacks(Base):
    name = "errbacks"

    async def start(self):
        for path in ("ware/1", "missing/1", "gone"):
            yield scrapy.Request(f"{SHOP}/{path}", self.parse, errback=self.lost, cb_kwargs={"path": path})

    def parse(self, response, path):
        yield self.item(response, path=path)

    def lost(self, failure):
        yield {
            "lost": failure.request.url,
            "status": failure.value.response.status,
            "path": failure.request.cb_kwargs["path"],
        }


class Statuses(Base):
    name = "statuses"
    handle_httpstatus_list = [404]
    start_urls = [f"{SHOP}/missing/2", f"{SHOP}/gone", f"{SHOP}/ware/1"]

    def parse(self, response):
        yield self.item(response, status=response.status)
        yield response.follow("/gone", self.all_of_them, meta={"handle_httpstatus_all": True}, dont_filter=True)

    def all_of_them(self, response):
        yield self.item(response, status=response.status, by="all")


class Redirects(Base):
    name = "redirects"
    start_urls = [f"{SHOP}/old/3"]

    def parse(self, response):
        meta = response.meta
        yield self.item(
            response, times=meta["redirect_times"], urls=meta["redirect_urls"], reasons=meta["redirect_reasons"]
        )
        yield scrapy.Request(
            f"{SHOP}/old/4", self.unmoved, meta={"dont_redirect": True, "handle_httpstatus_list": [302]}
        )

    def unmoved(self, response):
        yield self.item(response, status=response.status, to=response.headers["Location"].decode())


class Repeated(Base):
    name = "repeated"

    async def start(self):
        for _ in range(3):
            yield scrapy.Request(f"{SHOP}/ware/1")
        yield scrapy.Request(f"{SHOP}/ware/2")

    def parse(self, response):
        yield self.item(response)
        yield scrapy.Request(f"{SHOP}/ware/2", self.parse)
        if response.url.endswith("/2"):
            yield scrapy.Request(f"{SHOP}/ware/2", self.again, dont_filter=True)

    def again(self, response):
        yield self.item(response, again=True)


class SelfLink(Base):
    name = "self_link"
    start_urls = [f"{SHOP}/self"]

    def parse(self, response):
        yield from response.follow_all(css="a", callback=self.linked)

    def linked(self, response):
        yield self.item(response)


class Forms(Base):
    name = "forms"

    async def start(self):
        yield FormRequest(f"{SHOP}/enter", formdata={"token": "t7", "user": "ada"})

    def parse(self, response):
        sent = response.request
        yield self.item(response, method=sent.method, body=sent.body.decode())


class Login(Base):
    name = "login"
    start_urls = [f"{SHOP}/login"]

    def parse(self, response):
        return FormRequest.from_response(response, formdata={"user": "ada"}, callback=self.inside)

    def inside(self, response):
        yield self.item(response)
        yield response.follow("/club", self.club)

    def club(self, response):
        yield self.item(response)


class Jsons(Base):
    name = "jsons"

    async def start(self):
        yield JsonRequest(f"{SHOP}/api/search", data={"q": "lamp"})
        yield scrapy.Request(f"{SHOP}/api/wares?page=1", self.rows)

    def parse(self, response):
        yield response.json()

    def rows(self, response):
        found = response.json()
        yield from found["rows"]
        yield from ({"id": one, "by": "jmespath"} for one in response.jmespath("rows[].id").getall())
        if found["next"]:
            yield response.follow(f"?page={found['next']}", self.rows)


class Jars(Base):
    name = "jars"

    async def start(self):
        for name in ("one", "two"):
            yield scrapy.Request(f"{SHOP}/basket/{name}", meta={"cookiejar": name}, cb_kwargs={"jar": name})

    def parse(self, response, jar):
        yield self.item(response, jar=jar)
        yield response.follow(f"/basket/{jar}?again=1", self.again, meta={"cookiejar": jar}, cb_kwargs={"jar": jar})

    def again(self, response, jar):
        yield self.item(response, jar=jar, kept=True)


class Cookies(Base):
    name = "cookies"

    async def start(self):
        yield scrapy.Request(f"{SHOP}/basket/a", cookies={"basket": "mine"})

    def parse(self, response):
        yield self.item(response)


class Login2(Base):
    name = "auth"
    http_user = "ada"
    http_pass = "secret"
    http_auth_domain = "shop.example"
    start_urls = [f"{SHOP}/guarded"]

    def parse(self, response):
        yield self.item(response)


class Headers(Base):
    name = "headers"
    custom_settings = {"USER_AGENT": "forty/1"}

    async def start(self):
        yield scrapy.Request(f"{SHOP}/echo", headers={"X-Own": "2", "Connection": "keep-alive", "Host": "shop.example"})

    def parse(self, response):
        yield self.item(response, agent=response.css("i::text").get())


class Arguments(Base):
    name = "arguments"

    def __init__(self, kind="lamps", *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.kind = kind
        self.start_urls = [f"{SHOP}/ware/{len(kind)}"]

    def parse(self, response):
        yield self.item(response, kind=self.kind)


class FromCrawler(Base):
    name = "from_crawler"
    start_urls = [f"{SHOP}/ware/1"]

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        made = super().from_crawler(crawler, *args, **kwargs)
        made.told = (
            crawler.settings["BOT_NAME"],
            crawler.settings.getbool("FORTY_ADDON"),
            crawler.settings.get("FORTY_EARLY"),
        )
        return made

    def parse(self, response):
        self.crawler.stats.inc_value("forty/pages", 3)
        self.logger.info("seen")
        yield self.item(response, told=list(self.told))


class Closes(Base):
    name = "closes"
    start_urls = [f"{SHOP}/ware/1"]

    def parse(self, response):
        yield self.item(response)
        raise CloseSpider("enough")


class Asynchronous(Base):
    name = "asynchronous"
    start_urls = [f"{SHOP}/ware/1"]

    async def parse(self, response):
        other = await self.crawler.engine.download_async(scrapy.Request(f"{SHOP}/ware/2"))
        yield self.item(response, other=other.css("h1::text").get().strip())


class Offsite(Base):
    name = "offsite"
    allowed_domains = ["shop.example"]
    start_urls = [f"{SHOP}/list?page=3"]

    def parse(self, response):
        yield from response.follow_all(css="a.far, .card a", callback=self.ware)
        yield response.follow("http://elsewhere.example/ware/2", self.ware, dont_filter=True)

    def ware(self, response):
        yield self.item(response)


class Deep(Base):
    name = "deep"
    custom_settings = {"DEPTH_LIMIT": 3}
    start_urls = [f"{SHOP}/tree/0"]

    def parse(self, response):
        yield self.item(response, depth=response.meta["depth"])
        yield from response.follow_all(css="a")


class Fails(Base):
    name = "fails"
    start_urls = [f"{SHOP}/ware/1", f"{SHOP}/ware/2"]

    def parse(self, response):
        yield self.item(response)
        yield response.follow("/ware/9", self.fine)
        if response.url.endswith("/2"):
            raise ValueError("half way")

    def fine(self, response):
        yield self.item(response)


class Selectors(Base):
    name = "selectors"
    start_urls = [f"{SHOP}/ware/7"]

    def parse(self, response):
        own = Selector(text="<b class='x y'>1</b>")
        yield {
            "css": response.css("td::text").getall(), "xpath": response.xpath("//tr[th='Colour']/td/text()").get(),
            "re": response.css(".price::text").re(r"(\d+)\.(\d+)"), "has_class": own.xpath("//*[has-class('x')]/text()").get(),
            "attrib": response.css("a.doc").attrib["href"], "default": response.css("b::text").get(default="none"),
            "joined": response.urljoin("../x"), "json": json.loads("[1]"),
        }  # fmt: skip
