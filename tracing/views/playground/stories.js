// Settings that have something to show: what to look at, and what to change. `gain` says what a change does to the
// numbers, and a test holds each to it: "faster", "same" (speed), "more" or "less" (memory).
"use strict";

const STORIES = [
  {
    id: "no-workers", name: "why workers", setting: { workers: 0 },
    text: "Without workers main fetches and collates each batch itself, and the training stands still meanwhile: " +
      "main's lane is hatched and filled in turn. Add workers, and watch the training steps close up. From some " +
      "number on, more of them change nothing.",
    tries: [
      { name: "2 workers", change: { workers: 2 }, gain: ["faster"] },
      { name: "4 workers", change: { workers: 4 }, gain: ["faster"] },
      { name: "8 workers", change: { workers: 8 }, gain: ["faster", "more"] },
    ],
  },
  {
    id: "prefetch", name: "why prefetch", setting: { prefetch: 1, shape: "varied", sample: 9, train: 11 },
    text: "Four workers are quick enough on average, but samples differ, and with prefetch_factor=1 a worker that " +
      "has finished has no next task until main has taken its batch. Look at the gaps in the workers' lanes. A " +
      "task more for each evens it out; ten more only cost memory.",
    tries: [
      { name: "prefetch_factor=2", change: { prefetch: 2 }, gain: ["faster", "more"] },
      { name: "prefetch_factor=8", change: { prefetch: 8 }, gain: ["faster", "more"] },
    ],
  },
  {
    id: "slow-sample", name: "one slow sample",
    setting: { shape: "slow_sample", sample: 8, every: 50, factor: 25, train: 11 },
    text: "One sample in 50 takes 25 times as long. Its batch has its turn all the same: those made after it lie in " +
      "the reorder buffer, and as none of them is yielded no new task is sent, so the other workers run dry. " +
      "Without order main takes what is there; with more prefetch the others last longer.",
    tries: [
      { name: "in_order=False", change: { in_order: false }, gain: ["faster", "less"] },
      { name: "prefetch_factor=8", change: { prefetch: 8 }, gain: ["faster", "more"] },
    ],
  },
  {
    id: "slow-worker", name: "one slow worker", setting: { shape: "slow_worker", sample: 8, factor: 3, train: 11 },
    text: "Worker 0 takes three times as long (its disk, its core). The workers get tasks in turn, so in order all " +
      "of them work at its speed, and more prefetch is no help: it only fills the reorder buffer. Without order " +
      "a task goes to a worker that has room, and the quick ones get more of them.",
    tries: [
      { name: "prefetch_factor=8", change: { prefetch: 8 }, gain: ["same", "more"] },
      { name: "in_order=False", change: { in_order: false }, gain: ["faster", "less"] },
    ],
  },
  {
    id: "many-workers", name: "too many workers", setting: { workers: 16, prefetch: 4, sample: 8, train: 15 },
    text: "The training step is the limit, and 16 workers make batches that nobody needs yet: they fill the result " +
      "queues, and each is memory. Main cannot go faster than its step. Here every worker has a core; where " +
      "cores are shared, too many workers make each other slower, too.",
    tries: [
      { name: "3 workers", change: { workers: 3 }, gain: ["same", "less"] },
      { name: "3 workers, prefetch_factor=2", change: { workers: 3, prefetch: 2 }, gain: ["same", "less"] },
    ],
  },
  {
    id: "moving", name: "what moving costs", setting: { workers: 6, sample: 6, move: 9, train: 11, pinning: 3 },
    text: "To move a batch takes long: its worker packs it, and main has to unpack it between two steps (dotted). " +
      "More workers change nothing, since there is one main. The pin thread would unpack it while main trains; " +
      "better still are batches that are cheap to move: fewer and larger tensors.",
    tries: [
      { name: "12 workers", change: { workers: 12 }, gain: ["same", "more"] },
      { name: "pin_memory", change: { pin: true }, gain: ["faster"] },
      { name: "moving takes 1 ms", change: { move: 1 }, gain: ["faster"] },
    ],
  },
];
