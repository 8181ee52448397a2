BOT_NAME = "lookbook"
SPIDER_MODULES = ["lookbook.spiders"]
ROBOTSTXT_OBEY = True
DOWNLOAD_DELAY = 0.05
ITEM_PIPELINES = {"lookbook.pipelines.Prices": 300}
