"""trace b: not the iterator is dropped half way and the workers are never told"""

ANSWERS = {
    "a": "",
    "b": "the iterator is dropped half way and the workers are never told",
    "c": "",
    "d": "",
    "e": "",
    "f": "",
    "g": "",
    "h": "",
}
