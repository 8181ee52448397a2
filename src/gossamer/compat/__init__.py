"""Other people's interfaces on ours: projects of Scrapy, workers of Celery, clients of Firecrawl."""
