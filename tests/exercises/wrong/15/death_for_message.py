"""trace d: not nobody looks whether the worker is alive"""

ANSWERS = {
    "a": "",
    "b": "",
    "c": "",
    "d": "nobody looks whether the worker is alive",
    "e": "",
    "f": "",
    "g": "",
    "h": "",
}
