"""Exercise 15: wrong answers."""

from notebooks.exercises.bugs import TRACES
from tests.exercises.wrong.edits import Wrong


def named(letter: str, wrong: str) -> tuple[str, str]:
    return f'"{letter}": "{TRACES[letter]}"', f'"{letter}": "{wrong}"'


def confused(letter: str, wrong: str) -> Wrong:
    return Wrong(f"trace {letter}: not {wrong}", named(letter, wrong))


WRONG = {
    "death_for_message": confused("d", TRACES["b"]),
    "dropped_for_dead": confused("b", TRACES["h"]),
    "forgotten_for_twice": confused("e", "the error after a death is forgotten"),
    "half": Wrong("still to name", *(named(letter, "") for letter in "efgh")),
    "lock_for_message": confused("d", "the done event has a lock"),
    "not_a_name": Wrong("not one of the names", named("a", "the round robin is not reset"), named("b", "")),
    "order_for_turns": confused("a", TRACES["g"]),
}
