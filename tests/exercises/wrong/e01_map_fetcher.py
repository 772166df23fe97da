"""Exercise 1: wrong answers."""

from tests.exercises.wrong.edits import Wrong

WRONG = {
    "ignores_getitems": Wrong("ignores __getitems__", ("if get_all:", "if False:")),
    "none": Wrong("__getitems__ is None", ("if get_all:", 'if hasattr(self.dataset, "__getitems__"):')),
    "one_list": Wrong("one sample in a list", ("return self.dataset[keys]", "keys = [keys]")),
    "the_dataset": Wrong(
        "the dataset, not the keys",
        ("[self.dataset[key] for key in keys]", "[sample for sample, _ in zip(self.dataset, keys)]"),
    ),
}
