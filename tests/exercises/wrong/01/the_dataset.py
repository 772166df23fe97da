"""the dataset, not the keys"""


class MapFetcher:
    def fetch(self, keys):
        if not self.auto_collation:
            return self.dataset[keys]
        get_all = getattr(self.dataset, "__getitems__", None)
        if get_all:
            return get_all(keys)
        return [sample for sample, _ in zip(self.dataset, keys, strict=False)]
