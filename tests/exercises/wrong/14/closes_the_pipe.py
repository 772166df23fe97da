"""loses what was buffered at close"""

from queue import Empty


class Producer:
    def put(self, message):
        self._buffer.put(message)
        if self._feeder is None:
            self._feeder = self._world.thread(self._feed, (), "feeder")
            self._feeder.start()

    def close(self):
        if self._closed:
            return
        self._writer.close()
        self._closed = True

    def _feed(self):
        try:
            while not self._closed or self._buffer.qsize():
                self._send(self._buffer.get(timeout=0.1))
        except (OSError, Empty):
            pass
