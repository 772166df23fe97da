"""Exercise 14: wrong answers."""

from tests.exercises.wrong.edits import Wrong

PUT_LAST = "self._buffer.put(LAST)"
WRONG = {
    "callers_thread": Wrong(
        "writes in the caller's thread and can block it",
        ("self._buffer.put(message)\n        if self._feeder is None:", "self._send(message)\n        if False:"),
    ),
    "closes_the_pipe": Wrong(
        "loses what was buffered at close",
        (PUT_LAST, "self._writer.close()"),
        _feed="""
            try:
                while not self._closed or self._buffer.qsize():
                    self._send(self._buffer.get(timeout=0.1))
            except Exception:  # OSError or queue.Empty
                pass
        """,
    ),
    "joins": Wrong(
        "writes in the caller's thread and can block it",
        _forward="""
            self._buffer.put(message)
            if self._feeder is None:
                self._feeder = self._world.thread(self._feed, (), "feeder")
                self._feeder.start()
            while self._buffer.qsize():
                self._feeder.join(0.01)
        """,
    ),
    "loses": Wrong("loses what was buffered at close", ("is not LAST:", "is not LAST and not self._closed:")),
    "many_feeders": Wrong(
        "a feeder for each message",
        _forward="""
            self._buffer.put(message)
            self._feeder = self._world.thread(self._feed, (), "feeder")
            self._feeder.start()
        """,
        _feed="""
            try:
                message = self._buffer.get()
                if message is not LAST:
                    self._send(message)
            except OSError:
                self._writer.close()
        """,
    ),
    "no_feeder_yet": Wrong(
        "the pipe stays open",
        (f"self._writer.close()\n        else:\n            {PUT_LAST}", f"pass\n        {PUT_LAST}"),
    ),
    "outlives": Wrong("the feeder outlives the queue", (PUT_LAST, "pass")),
    "reader_gone": Wrong(
        "an error ends the feeder", ("except OSError as error:", "except OSError as error:\n            raise")
    ),
    "stays_open": Wrong(
        "the pipe stays open", ("finally:\n            self._writer.close()", "finally:\n            pass")
    ),
    "stop_is_the_last": Wrong(
        "loses what was buffered at close",
        (
            "del message ",
            'if type(message).__name__ == "Stop":\n                    break\n                del message ',
        ),
    ),
    "nothing_in_the_buffer": Wrong(
        "loses what was buffered at close",
        (
            f"        else:\n            {PUT_LAST}",
            "        else:\n            if not self._buffer.qsize():\n                self._writer.close()\n"
            f"            {PUT_LAST}",
        ),
    ),
    "nothing_in_the_buffer_of_a_waiting_feeder": Wrong(
        "loses what was buffered at close",
        _forward="""
            if self._feeder is None:
                self._feeder = self._world.thread(self._feed, (), "feeder")
                self._feeder.start()
            self._buffer.put(message)
        """,
        close="""
            if self._closed:
                return
            self._closed = True
            if self._buffer.qsize() == 0:
                self._writer.close()
            if self._feeder is not None:
                self._buffer.put(LAST)
        """,
    ),
    "goes_on": Wrong(
        "goes on without a reader",
        _feed="""
            while (message := self._buffer.get()) is not LAST:
                with contextlib.suppress(OSError):
                    self._send(message)
            self._writer.close()
        """,
    ),
}
