"""torch's own loader, made to emit what it does. None of it is rewritten: its iterators are subclassed, and through the
multiprocessing_context that it accepts its queues, its done event and its processes are wrapped.

attach.py                      while a recorder is installed, iterators are of a subclass
iterators.py                   main: the two iterators
multiprocessing_context.py     main: what makes the queues and the workers' processes
queues.py                      the queues' two ends: what is put and what is taken
worker.py                      a worker, around torch's `_worker_loop`
fetcher.py                     its fetcher and collate_fn
common.py                      what all these have in common; the epochs of a loader

What torch does out of sight (its feeder threads, the last line of its pin thread) is not guessed at: it has no events.
"""
