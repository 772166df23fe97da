"""loses what was buffered at close"""

from minidl.queues import LAST


class Producer:
    def put(self, message):
        self._buffer.put(message)
        if self._feeder is None:
            self._feeder = self._world.thread(self._feed, (), "feeder")
            self._feeder.start()

    def close(self):
        if self._closed:
            return
        if self._feeder is None:
            self._writer.close()
        else:
            self._buffer.put(LAST)
        self._closed = True

    def _feed(self):
        try:
            while (message := self._buffer.get()) is not LAST and not self._closed:
                self._send(message)
        except OSError:
            pass
        finally:
            self._writer.close()
