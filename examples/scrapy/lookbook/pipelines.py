from itemadapter import ItemAdapter


class Prices:
    def process_item(self, item):
        adapter = ItemAdapter(item)
        if text := adapter.get("price"):
            adapter["price"] = float(text.lstrip("€").replace(",", ""))
        return item
