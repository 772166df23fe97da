"""not one of the names"""

ANSWERS = {
    "a": "the round robin is not reset",
    "b": "",
    "c": "",
    "d": "",
    "e": "",
    "f": "",
    "g": "",
    "h": "",
}
