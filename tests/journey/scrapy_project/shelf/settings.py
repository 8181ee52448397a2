"""Settings as `scrapy startproject` leaves them, with a few lines changed."""

BOT_NAME = "shelf"
SPIDER_MODULES = ["shelf.spiders"]
NEWSPIDER_MODULE = "shelf.spiders"

USER_AGENT = "shelf (+http://127.0.0.1)"
ROBOTSTXT_OBEY = True
CONCURRENT_REQUESTS_PER_DOMAIN = 8
DOWNLOAD_DELAY = 0
RETRY_TIMES = 1
DEFAULT_REQUEST_HEADERS = {"Accept": "*/*", "X-Shelf": "yes"}
TELNETCONSOLE_ENABLED = False
FEED_EXPORT_ENCODING = "utf-8"
LOG_LEVEL = "WARNING"
