"""Items of every kind."""

import dataclasses

import attrs
import scrapy
from itemloaders.processors import Join, MapCompose, TakeFirst
from scrapy.loader import ItemLoader


class Ware(scrapy.Item):
    sku = scrapy.Field()
    name = scrapy.Field(serializer=str)
    price = scrapy.Field()
    tags = scrapy.Field(output_processor=Join("|"))
    file_urls = scrapy.Field()
    files = scrapy.Field()


@dataclasses.dataclass
class WareData:
    sku: str
    price: float | None = None
    tags: list = dataclasses.field(default_factory=list)


@attrs.define
class WareAttrs:
    sku = attrs.field()
    name = attrs.field(default="")


class WareLoader(ItemLoader):
    default_item_class = Ware
    default_output_processor = TakeFirst()
    name_in = MapCompose(str.strip, str.upper)
    price_in = MapCompose(lambda text: text.replace("Price:", "").split()[0], float)
    tags_in = MapCompose(str.strip)
