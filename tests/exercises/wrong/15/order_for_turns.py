"""trace a: not any message is taken for the acknowledgement of a new epoch"""

ANSWERS = {
    "a": "any message is taken for the acknowledgement of a new epoch",
    "b": "",
    "c": "",
    "d": "",
    "e": "",
    "f": "",
    "g": "",
    "h": "",
}
