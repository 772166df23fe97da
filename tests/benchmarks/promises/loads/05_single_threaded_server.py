"""Samples come by TCP from a feature service which handles one request at a time.

TRUTH: the 6 workers queue at the server process (4 ms service time per sample, one at a
time): 64 ms per batch of 16. Workers wait in recv(), no CPU used.
FIX: a server with several threads/replicas, or asking for a whole batch in one request;
more workers do nothing; fewer (2) do as well.
"""

import argparse
import json
import multiprocessing as mp
import selectors
import socket
import struct
import time

import torch
from torch.utils.data import DataLoader, Dataset

FLOATS = 256


def server(conn):
    s = socket.create_server(("127.0.0.1", 0), backlog=64)
    conn.send(s.getsockname())
    sel = selectors.DefaultSelector()
    sel.register(s, selectors.EVENT_READ, None)
    while True:
        for key, _ in sel.select():
            if key.data is None:
                c, _ = s.accept()
                sel.register(c, selectors.EVENT_READ, "client")
                continue
            raw = key.fileobj.recv(4)
            if not raw:
                sel.unregister(key.fileobj)
                key.fileobj.close()
                continue
            (i,) = struct.unpack("!I", raw)
            time.sleep(0.004)
            key.fileobj.sendall(struct.pack("!f", i) * FLOATS)


class Service(Dataset):
    def __init__(self, address, n):
        self.address, self.n, self.sock = address, n, None

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if self.sock is None:
            self.sock = socket.create_connection(self.address)
        self.sock.sendall(struct.pack("!I", i))
        data = bytearray()
        while len(data) < 4 * FLOATS:
            data += self.sock.recv(4096)
        return torch.frombuffer(data, dtype=torch.uint8).view(torch.int32) * 1.0


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", type=json.loads, default={})
    kw = {"batch_size": 16, "num_workers": 6, **ap.parse_args().options}
    if kw["num_workers"] == 0:
        kw = {k: v for k, v in kw.items() if k not in ("prefetch_factor", "persistent_workers")}
    here, there = mp.Pipe()
    proc = mp.Process(target=server, args=(there,), daemon=True)
    proc.start()
    address = here.recv()
    w = torch.randn(FLOATS)
    for x in DataLoader(Service(address, 1000), **kw):
        (x @ w).sum().item()
        time.sleep(0.008)
    proc.terminate()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
