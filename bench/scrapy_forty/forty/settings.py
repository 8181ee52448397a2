"""Settings of the project; what concerns one spider is in its custom_settings."""

BOT_NAME = "forty"
SPIDER_MODULES = ["forty.spiders"]
NEWSPIDER_MODULE = "forty.spiders"
ROBOTSTXT_OBEY = False
DOWNLOAD_DELAY = 0
CONCURRENT_REQUESTS_PER_DOMAIN = 4
RETRY_TIMES = 1
TELNETCONSOLE_ENABLED = False
ADDONS = {"forty.addons.CountingAddon": 100}
EXTENSIONS = {"forty.extensions.SignalCount": 500}
DEFAULT_REQUEST_HEADERS = {"Accept": "text/html", "Accept-Language": "en", "X-Own-Default": "1"}
GOSSAMER_ITEM_KEYS = {"Ware": "sku", "WareData": "sku", "WareAttrs": "sku"}
