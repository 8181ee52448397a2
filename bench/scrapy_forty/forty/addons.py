"""An add-on: it brings a pipeline along, and a setting."""


class CountingAddon:
    @classmethod
    def update_pre_crawler_settings(cls, settings):
        settings.set("FORTY_EARLY", "seen", priority="addon")

    def update_settings(self, settings):
        settings.set("FORTY_ADDON", True, priority="addon")
        pipelines = settings.getdict("ITEM_PIPELINES")
        settings.set("ITEM_PIPELINES", {**pipelines, "forty.pipelines.Counted": 900}, priority="addon")
