"""What workers cost besides the time their messages take. torch's loader moves each tensor in shared memory of its own:
its worker makes that, and main gives it back, in the next step. And threads that exchange messages wake each other and
share Python's lock, which slows down all else that they do.

No trace of one setting shows this. Measured here, on batches of 1 to 200 small tensors, as the difference between torch
2.13's loader with workers and without.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tracing.analysis.whatif.durations import Durations
from tracing.analysis.whatif.hops import HopTimes

TENSOR_MADE, TENSOR_FREED = 60e-6, 19e-6  # s of CPU: by its worker, by main
BATCH_MADE, BATCH_USED = 100e-6, 150e-6  # s of CPU: by its worker, by main in the training step
HANDLED = 0.15  # the share of the loader's bookkeeping that is left without workers
LEAST = 0.1  # of a batch's making, or of a step, is left in any case
TENSORS = 2  # in a batch, if its message was not seen

# Of a loader whose workers were not seen, because it had none: s
HOP, STARTING, PREPARING, STOPPING = 300e-6, 0.008, 0.025, 0.01


def in_setting(times: Durations, workers: int) -> Durations:
    """`times`, as they would be with that many workers, if none were recorded; or the other way round."""
    if not times.shares_tensors or bool(workers) == bool(times.setting.num_workers):
        return times
    return _with_workers(times) if workers else _without_workers(times)


def _without_workers(times: Durations) -> Durations:
    made, used = BATCH_MADE + times.tensors * TENSOR_MADE, BATCH_USED + times.tensors * TENSOR_FREED
    return replace(
        times,
        making_cpu=np.maximum(LEAST * times.making_cpu, times.making_cpu - made),
        making_wait=np.maximum(0, times.making_wait - times.feeding),
        training=np.maximum(LEAST * times.training, times.training - used),
        handling_cpu=HANDLED * times.handling_cpu,
        handling_wait=HANDLED * times.handling_wait,
    )


def _with_workers(times: Durations) -> Durations:
    hop = HopTimes(np.full(len(times), HOP), np.zeros(len(times)))
    return replace(
        times,
        making_cpu=times.making_cpu + BATCH_MADE + TENSORS * TENSOR_MADE,
        training=times.training + BATCH_USED + TENSORS * TENSOR_FREED,
        handling_cpu=times.handling_cpu / HANDLED,
        sending=hop,
        pickling=hop,
        unpickling=hop,
        starting=STARTING,
        preparing_cpu=PREPARING,
        stopping=STOPPING,
    )
