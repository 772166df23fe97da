"""still to name"""

ANSWERS = {
    "a": "the round-robin is not reset",
    "b": "nobody looks whether the worker is alive",
    "c": "a new task is sent on receipt instead of on yield",
    "d": "the final message is lost, and nothing stands behind the join",
    "e": "",
    "f": "",
    "g": "",
    "h": "",
}
