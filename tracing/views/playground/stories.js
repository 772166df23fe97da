// Settings that have something to show: what to look at, and what to change. `gain` says what a change does to the
// numbers, and a test holds each to it: "faster", "same" (speed), "more" or "less" (memory).
"use strict";

const STORIES = [
  {
    id: "no-workers", name: "why workers", setting: { workers: 0 },
    text: "Without workers main fetches and collates each batch itself, and cannot train meanwhile: in its lane the " +
      "training steps, with a line above and below, are far apart. Add workers, and watch the steps close up. " +
      "Beyond some number, more workers only make more batches that wait.",
    tries: [
      { name: "2 workers", change: { workers: 2 }, gain: ["faster"] },
      { name: "4 workers", change: { workers: 4 }, gain: ["faster"] },
      { name: "8 workers", change: { workers: 8 }, gain: ["faster", "more"] },
    ],
  },
  {
    id: "prefetch", name: "why prefetch", setting: { prefetch: 1, shape: "varied", sample: 9, train: 11 },
    text: "Four workers are quick enough on average, but samples differ. With prefetch_factor=1 a worker that has " +
      "finished has nothing to do until main has taken its batch and sent it another task: look at the gaps in " +
      "the workers' lanes. One more task for each fills them. Eight for each only cost memory.",
    tries: [
      { name: "prefetch_factor=2", change: { prefetch: 2 }, gain: ["faster", "more"] },
      { name: "prefetch_factor=8", change: { prefetch: 8 }, gain: ["faster", "more"] },
    ],
  },
  {
    id: "slow-sample", name: "one slow sample",
    setting: { shape: "slow_sample", sample: 8, every: 50, factor: 25, train: 11 },
    text: "One sample in 50 takes 25 times as long. Main waits for its batch, while those made after it lie in the " +
      "reorder buffer; and as no batch is taken, no task is sent, so the other workers run dry. Without order " +
      "main takes what is there. With more prefetch the workers have enough to do for longer.",
    tries: [
      { name: "in_order=False", change: { in_order: false }, gain: ["faster", "less"] },
      { name: "prefetch_factor=8", change: { prefetch: 8 }, gain: ["faster", "more"] },
    ],
  },
  {
    id: "slow-worker", name: "one slow worker", setting: { shape: "slow_worker", sample: 8, factor: 3, train: 11 },
    text: "Worker 0 takes three times as long as the others. The workers get tasks in turn, so in order all of them " +
      "go at its speed, and more prefetch is no help: it only fills the reorder buffer. Without order a task " +
      "goes to the next worker that has room, and the quick ones get more of them.",
    tries: [
      { name: "prefetch_factor=8", change: { prefetch: 8 }, gain: ["same", "more"] },
      { name: "in_order=False", change: { in_order: false }, gain: ["faster", "less"] },
    ],
  },
  {
    id: "many-workers", name: "too many workers", setting: { workers: 16, prefetch: 4, sample: 8, train: 15 },
    text: "The training step is the limit, and 16 workers make batches that nobody needs yet: they fill the result " +
      "queues, and all of them are in memory. Main gets no faster than its step. Here each worker has a core of " +
      "its own; where they share cores, they would slow each other down as well.",
    tries: [
      { name: "3 workers", change: { workers: 3 }, gain: ["same", "less"] },
      { name: "3 workers, prefetch_factor=2", change: { workers: 3, prefetch: 2 }, gain: ["same", "less"] },
    ],
  },
  {
    id: "moving", name: "what moving costs", setting: { workers: 6, sample: 6, move: 9, train: 11, pinning: 3 },
    text: "Moving a batch is slow: its worker packs it, and main unpacks it between two training steps (dotted). " +
      "More workers change nothing, since there is only one main. The pin thread would unpack it while main " +
      "trains. Better still are batches that are cheap to move, of fewer and larger tensors.",
    tries: [
      { name: "12 workers", change: { workers: 12 }, gain: ["same", "more"] },
      { name: "pin_memory", change: { pin: true }, gain: ["faster"] },
      { name: "moving takes 1 ms", change: { move: 1 }, gain: ["faster"] },
    ],
  },
];
