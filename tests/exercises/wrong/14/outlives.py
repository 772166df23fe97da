"""the feeder outlives the queue"""


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
        self._closed = True

    def _feed(self):
        try:
            while True:
                self._send(self._buffer.get())
        except OSError:
            self._writer.close()
