"""Events and numbers in words: the one table serves every kind, and every view."""

from __future__ import annotations

import numpy as np

from minidl.events import NO_TASK, STOP, Kind, Queue
from tests.tracing import traces
from tracing.trace.event_words import Sentence, mark, sentence
from tracing.trace.kinds import MARKED, TRAITS
from tracing.trace.words import duration, size
from tracing.views.export.slices import LEAVES, SPANS
from tracing.views.timeline.marks import FIRST, SECOND


def event(kind: Kind, **fields: int) -> np.void:
    return traces.event(kind, **{"task": 3, "worker": 1, "queue": Queue.RESULT, **fields})[0]


def test_every_kind_has_the_words_that_views_need() -> None:
    for kind in Kind:
        words = sentence(event(kind)).text()
        assert words[0].islower() and words[-1] != "." and not set("{}") & set(words), kind
    assert {*FIRST, *SECOND - {Kind.TASK_LOST}} <= MARKED
    assert {kind for kind, meaning in TRAITS.items() if meaning.slice} == {*SPANS, *LEAVES}


def test_a_sentence_leaves_the_batch_to_the_view() -> None:
    assert sentence(event(Kind.PUT)).text("batch {}") == "puts batch 3 on worker_result_queue 1"
    assert sentence(event(Kind.PUT, queue=Queue.DATA, task=STOP)) == Sentence("puts ", "STOP", " on data_queue")
    assert sentence(event(Kind.GOT, task=NO_TASK)) == Sentence("has taken a message from worker_result_queue 1")
    assert sentence(event(Kind.ERROR_RAISED), "KeyError: {batch}") == Sentence("raises KeyError: {batch}")
    for code, words in ((-9, "SIGKILL"), (-99, "signal 99"), (3, "exit code 3")):
        assert mark(event(Kind.WORKER_DIED, value=code), "") == f"worker 1 died ({words})"


# ---- numbers


DURATIONS = {
    -5: "0 ns", 999: "999 ns", 999.6: "1 µs", 999_400: "999 µs", 999_600: "1.0 ms", 12_340_000: "12.3 ms",
    999_600_000: "1.00 s", 59.96e9: "60.0 s", 999e9: "999 s", 999.6e9: "16.7 min", 7200e9: "2.0 h",
}  # fmt: skip
SIZES = {999: "999 B", 1000: "1.0 KB", 99_960: "100 KB", 999_600: "1.0 MB", 999_600_000: "1.0 GB", 123e9: "123.0 GB"}


def test_durations_and_sizes_are_short() -> None:
    assert {ns: duration(ns) for ns in DURATIONS} == DURATIONS
    assert {nbytes: size(nbytes) for nbytes in SIZES} == SIZES
