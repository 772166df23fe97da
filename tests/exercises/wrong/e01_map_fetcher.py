"""Exercise 1: wrong answers."""

from tests.exercises.wrong.edits import Wrong

WRONG = {
    "bare_key_at_once": Wrong(
        "another case",
        fetch="""
            if getattr(self.dataset, "__getitems__", None) and len(str(keys)) > 1:
                return self.dataset.__getitems__(keys)
            if not self.auto_collation:
                return self.dataset[keys]
            return [self.dataset[key] for key in keys]
        """,
    ),
    "ignores_getitems": Wrong("ignores __getitems__", ("if get_all:", "if False:")),
    "none": Wrong("__getitems__ is None", ("if get_all:", 'if hasattr(self.dataset, "__getitems__"):')),
    "one_list": Wrong("one sample in a list", ("return self.dataset[keys]", "keys = [keys]")),
    "the_dataset": Wrong(
        "the dataset, not the keys",
        ("[self.dataset[key] for key in keys]", "[sample for sample, _ in zip(self.dataset, keys)]"),
    ),
    "empties_the_keys": Wrong(
        "another case", ("[self.dataset[key] for key in keys]", "[self.dataset[keys.pop(0)] for _ in range(len(keys))]")
    ),
    "leaves_out_none": Wrong("another case", ("for key in keys]", "for key in keys if self.dataset[key] is not None]")),
    "hides_an_error": Wrong(
        "another case",
        fetch="""
            if not self.auto_collation:
                return self.dataset[keys]
            try:
                if self.dataset.__getitems__ is not None:
                    return self.dataset.__getitems__(keys)
            except AttributeError:  # it has none
                pass
            return [self.dataset[key] for key in keys]
        """,
    ),
}
