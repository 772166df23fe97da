"""Events in words: the one table serves every kind, and every view."""

from __future__ import annotations

import numpy as np
import pytest

from minidl.events import NO_TASK, STOP, Kind, Queue
from tracing.recording import file_format as fmt
from tracing.trace.event_words import Sentence, mark, sentence
from tracing.trace.kinds import MARKED, TRAITS
from tracing.views.export.slices import LEAVES, SPANS
from tracing.views.timeline.marks import FIRST, SECOND


def event(kind: Kind, **fields: int) -> np.void:
    events = np.zeros(1, fmt.RECORD_DTYPE)
    for name, value in {"kind": kind, "task": 3, "worker": 1, "queue": Queue.RESULT, **fields}.items():
        events[name] = value
    return events[0]


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_a_sentence_that_follows_a_name(kind: Kind) -> None:
    words = sentence(event(kind)).text()
    assert words[0].islower() and words[-1] != "." and not set("{}") & set(words)


def test_kinds_have_the_words_that_views_need() -> None:
    assert {*FIRST, *SECOND - {Kind.TASK_LOST}} <= MARKED
    assert {kind for kind, meaning in TRAITS.items() if meaning.slice} == {*SPANS, *LEAVES}


def test_a_sentence_leaves_the_batch_to_the_view() -> None:
    assert sentence(event(Kind.PUT)) == Sentence("puts ", 3, " on worker_result_queue 1")
    assert sentence(event(Kind.PUT)).text("batch {}") == "puts batch 3 on worker_result_queue 1"
    assert sentence(event(Kind.PUT, queue=Queue.DATA, task=STOP)) == Sentence("puts ", "STOP", " on data_queue")
    assert sentence(event(Kind.GOT, task=NO_TASK)) == Sentence("has taken a message from worker_result_queue 1")
    assert sentence(event(Kind.ERROR_RAISED), "KeyError: {batch}") == Sentence("raises KeyError: {batch}")


@pytest.mark.parametrize(("code", "words"), [(-9, "SIGKILL"), (-99, "signal 99"), (3, "exit code 3")])
def test_an_exit_code_is_named(code: int, words: str) -> None:
    assert mark(event(Kind.WORKER_DIED, value=code), "") == f"worker 1 died ({words})"
