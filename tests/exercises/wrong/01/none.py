"""__getitems__ is None"""


class MapFetcher:
    def fetch(self, keys):
        if not self.auto_collation:
            return self.dataset[keys]
        if hasattr(self.dataset, "__getitems__"):
            return self.dataset.__getitems__(keys)
        return [self.dataset[key] for key in keys]
