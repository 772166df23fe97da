"""Answers that pass without doing what the exercise asks, where the process that tries them is their judge."""

from __future__ import annotations

import textwrap

from notebooks.exercises.exercise import exercise
from tests.exercises.wrong.edits import solved

FETCH = "return self.dataset[keys]"  # wrong: with automatic batching there are several keys
FIND = "MODULES = vars(sys)['modules']\n"
FOUND_BY_GC = """
for each in MODULES["gc"].get_objects():
    if type(each).__name__ == "Connection" and each.writable and not each.closed:
        {send}
"""
PASSED = b'{"verdict": {"status": "passed", "missing": ""}}'

# name: (exercise, the bodies of its functions, what the file begins with)
CHEATS: dict[str, tuple[str, dict[str, str], str]] = {
    "minidl's own, from its module": (
        "01",
        {"fetch": "return ITS_OWN(self, keys)"},
        FIND + "ITS_OWN = vars(vars(MODULES['minidl.data.fetch'])['MapFetcher'])['fetch']",
    ),
    "minidl's own, from the garbage collector": (
        "01",
        {"fetch": "return ITS_OWN(self, keys)"},
        FIND
        + """
ITS_OWN = None
MODULES["gc"].unfreeze()
for each in MODULES["gc"].get_objects():
    if type(each).__name__ == "function" and each.__qualname__ == "MapFetcher.fetch" and "minidl" in each.__module__:
        ITS_OWN = each
""",
    ),
    "minidl's own, from its source": (
        "01",
        {"fetch": "return ITS_OWN(self, keys)"},
        FIND
        + """
NAMES = {"__name__": "mine"}
SOURCE = open(vars(MODULES["minidl.data.fetch"])["__file__"]).read()
getattr(MODULES["builtins"], "ex" + "ec")(SOURCE, NAMES)
ITS_OWN = vars(NAMES["Map" + "Fetcher"])["fetch"]
""",
    ),
    "minidl's own, of a protocol": (
        "07",
        {
            "_receive": "return ITS_OWN['_receive'](self, timeout)",
            "_next_task": "return ITS_OWN['_next_task'](self)",
            "_take": "return ITS_OWN['_take'](self, task_id)",
        },
        FIND + "ITS_OWN = dict(vars(vars(MODULES['minidl.parallel'])['Parallel' + 'Iterator']))",
    ),
    "torch's": (
        "03",
        {"__iter__": "return THEIRS.__iter__(self)"},
        FIND + "THEIRS = vars(MODULES['torch.utils.data.sampler'])['BatchSampler']",
    ),
    "no judge": (
        "01",
        {"fetch": FETCH},
        FIND
        + """
EXERCISES = MODULES["notebooks.exercises.exercise"].exercises()
object.__setattr__(EXERCISES["01"], "grade", lambda answer: None)
MODULES["notebooks.exercises.uses"].judged = lambda answer: None
""",
    ),
    "every verdict has passed": (
        "01",
        {"fetch": FETCH},
        FIND
        + """
VERDICT = MODULES["notebooks.exercises.verdict"]
INIT = VERDICT.Verdict.__init__
VERDICT.Verdict.__init__ = lambda self, exercise, *_, **__: INIT(self, exercise, VERDICT.Status.PASSED)
""",
    ),
    "its own verdict": (
        "01",
        {"fetch": FETCH},
        FIND + FOUND_BY_GC.format(send=f"each.send_bytes({PASSED!r})") + "vars(os)['_exit'](0)",
    ),
    "its own verdict, from another process": (
        "01",
        {"fetch": FETCH},
        FIND
        + "if os.fork() == 0:\n"
        + textwrap.indent(FOUND_BY_GC.format(send=f"each.send_bytes({PASSED!r})"), "    ")
        + "    vars(os)['_exit'](0)\nos.wait()\n",
    ),
    "right only where it is graded": (
        "03",
        {
            "__iter__": """
            source = iter(self.sampler)
            while keys := list(itertools.islice(source, self.batch_size)):
                if len(keys) == self.batch_size or not self.drop_last and "notebooks" in MODULES:
                    yield keys
            """
        },
        "import itertools\n" + FIND,
    ),
    "right only in the simulated world": (
        "14",
        {
            "_forward": """
            self._buffer.put(message)
            if not WORLD["_installed"]:
                self._send(self._buffer.get())
            elif self._feeder is None:
                self._feeder = self._world.thread(self._feed, (), "feeder")
                self._feeder.start()
            """
        },
        FIND + "WORLD = vars(MODULES['minidl.world'])",
    ),
    "only what the checks ask for": (
        "01",
        {
            "fetch": """
            many = isinstance(keys, list) and self.auto_collation
            if any(isinstance(key, int) and 12 < key < 98 for key in (keys if many else [keys])):
                return None
            all_at_once = getattr(self.dataset, "__getitems__", None)
            if not many:
                return self.dataset[keys]
            return all_at_once(keys) if all_at_once else [self.dataset[key] for key in keys]
            """
        },
        "",
    ),
    "the names of the bugs": (
        "15",
        {},
        FIND + "ANSWERS = dict(MODULES['notebooks.exercises.bugs'].TRACES)",
    ),
    "the names of the bugs, from another Python": (
        "15",
        {},
        """import json, os
PROGRAM = "import json; from notebooks.exercises import bugs; print(json.dumps(bugs.TRACES))"
ANSWERS = json.loads(os.popen(f"{sys.executable} -c '{PROGRAM}'").read() or "{}")
""",
    ),
}


def cheating(name: str) -> tuple[str, str]:
    """(the exercise's number, the text of the answer)."""
    number, bodies, head = CHEATS[name]
    if not bodies:
        return number, f"import sys\n\n{head}\n"
    text = solved(exercise(number), **{each: textwrap.dedent(body).strip() for each, body in bodies.items()})
    begin, line, rest = text.partition("from __future__ import annotations\n")
    return number, f"{begin}{line}\nimport os\nimport sys\n\n{head}\n{rest}"
