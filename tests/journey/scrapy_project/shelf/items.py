from dataclasses import dataclass, field

import scrapy
from itemloaders.processors import MapCompose, TakeFirst
from scrapy.loader import ItemLoader


class Ware(scrapy.Item):
    url = scrapy.Field()
    name = scrapy.Field()
    price = scrapy.Field()
    shelf = scrapy.Field()


class WareLoader(ItemLoader):
    default_item_class = Ware
    default_output_processor = TakeFirst()
    name_in = MapCompose(str.strip, str.title)
    price_in = MapCompose(lambda text: text.removeprefix("$"), float)


@dataclass
class Part:
    number: int
    labels: list[str] = field(default_factory=list)
