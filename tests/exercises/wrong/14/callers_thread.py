"""writes in the caller's thread and can block it"""


class Producer:
    def put(self, message):
        self._send(message)

    def close(self):
        if self._closed:
            return
        self._writer.close()
        self._closed = True

    def _feed(self):
        pass
