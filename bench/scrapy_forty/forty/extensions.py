"""An extension that listens to signals and counts in the stats."""

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.exporters import CsvItemExporter
from scrapy.logformatter import LogFormatter


class QuietFormatter(LogFormatter):
    def scraped(self, item, response, spider=None):
        return None


class TsvExporter(CsvItemExporter):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, delimiter="\t", **kwargs)


class SignalCount:
    def __init__(self, stats):
        self.stats = stats

    @classmethod
    def from_crawler(cls, crawler):
        if not crawler.settings.getbool("FORTY_SIGNALS", True):
            raise NotConfigured("switched off")
        made = cls(crawler.stats)
        crawler.signals.connect(made.opened, signal=signals.spider_opened)
        crawler.signals.connect(made.scraped, signal=signals.item_scraped)
        crawler.signals.connect(made.dropped, signal=signals.item_dropped)
        crawler.signals.connect(made.received, signal=signals.response_received)
        crawler.signals.connect(made.failed, signal=signals.spider_error)
        crawler.signals.connect(made.downloaded, signal=signals.response_downloaded)
        return made

    def opened(self, spider):
        self.opened_for = spider.name  # what is counted here belongs to the process, not to the job

    def scraped(self, item, response, spider):
        self.stats.inc_value("forty/scraped")

    async def dropped(self, item, response, exception, spider):
        self.stats.inc_value("forty/dropped")

    def received(self, response, request, spider):
        self.stats.inc_value(f"forty/status/{response.status}")

    def downloaded(self, response, request, spider):
        self.stats.inc_value("forty/downloaded")

    def failed(self, failure, response, spider):
        self.stats.inc_value(f"forty/failed/{failure.type.__name__}")
