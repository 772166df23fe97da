"""trace d: not the done event has a lock"""

ANSWERS = {
    "a": "",
    "b": "",
    "c": "",
    "d": "the done event has a lock",
    "e": "",
    "f": "",
    "g": "",
    "h": "",
}
