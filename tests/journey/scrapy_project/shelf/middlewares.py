class Marks:
    """A downloader middleware that marks requests, and a header of the answer."""

    def process_request(self, request, spider):
        request.headers["X-Marked"] = request.meta.get("mark", "none")

    def process_response(self, request, response, spider):
        response.headers["X-Seen"] = request.headers["X-Marked"]
        return response


class Stamps:
    """A spider middleware that stamps items."""

    async def process_spider_output(self, response, result, spider):
        async for one in result:
            if isinstance(one, dict):
                one["stamp"] = response.headers["X-Seen"].decode()
            yield one
