"""one sample in a list"""


class MapFetcher:
    def fetch(self, keys):
        if not self.auto_collation:
            keys = [keys]
        get_all = getattr(self.dataset, "__getitems__", None)
        return get_all(keys) if get_all else [self.dataset[key] for key in keys]
