"""trace e: not the error after a death is forgotten"""

ANSWERS = {
    "a": "",
    "b": "",
    "c": "",
    "d": "",
    "e": "the error after a death is forgotten",
    "f": "",
    "g": "",
    "h": "",
}
