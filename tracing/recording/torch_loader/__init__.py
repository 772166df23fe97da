"""torch's own loader, made to say what it does. Nothing of it is rewritten: its iterator is subclassed, and through
the multiprocessing_context that it accepts its queues, its event and its processes are wrapped.

queues.py      the queues' two ends: what is put and what is taken
context.py     main: what makes the queues and processes
iterators.py   main: the two iterators
worker.py      a worker, around torch's `_worker_loop`
signals.py     the news of a death, put off until an event is written

What torch does out of sight (its feeder threads, the last line of its pin thread) is not guessed: no event tells of it.
"""
