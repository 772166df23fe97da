// The model: what minidl's loader does in a setting, as a list of events in virtual time. It is the protocol of
// minidl/parallel.py, worker.py, pinning.py and queues.py in brief; a test compares it with these, event by event.
//
// Principles
// 1. Threads are generators: they take turns, in one thread of the browser, and `yield` only where they wait: for a
//    condition (a function) or for a moment (a number).
// 2. The rule for ties is that of the simulated world: a thread goes on until it has to wait. Then comes the next one
//    that can, in the order main, workers, pin thread, and from the last to the first again. When all wait, the clock
//    jumps to the next moment that one of them waits for; if several do, the first of them wakes, and the others do
//    once all wait again.
// 3. Only what a setting gives a duration takes time. A setting's times are ms; inside they are whole ticks, so that
//    equal times are equal.
// 4. Every thread has a core of its own. (`python -m tracing whatif` predicts what shared cores change.)
//
// Legend
//    setting   {workers: 4, prefetch: 2, in_order: true, ...}     see DEFAULTS
//    task      3                                                  the number of a batch
//    event     [1250, "FETCH_BEGIN", 3, 0]                        tick, kind, task, worker (-1: none)
"use strict";

const TICKS = 10; // in a ms

const DEFAULTS = {
  workers: 4, // num_workers; 0: main does all the work
  prefetch: 2, // prefetch_factor
  in_order: true,
  pin: false, // pin_memory
  batch: 4, // batch_size
  shape: "constant", // of the times of samples: "constant", "varied", "slow_sample", "slow_worker"
  sample: 10, // ms for a sample
  every: 40, // "slow_sample": one in this many is slow
  factor: 10, // how many times as long the slow one takes
  collate: 2, // ms for a batch
  move: 0.5, // ms to pack a batch in its worker, and as much to unpack it
  pinning: 4, // ms for a batch
  train: 12, // ms for a step
  batches: 200,
};

// A number from 0 to 1 for each sample, the same on every machine: the finalizer of MurmurHash3.
function chance(key) {
  let hash = Math.imul(key + 1, 0x9e3779b1);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return ((hash ^ (hash >>> 16)) >>> 0) / 2 ** 32;
}

const isSlow = ({ shape, every }, key) => shape === "slow_sample" && key % every === every >> 1; // the middle one

// How many ticks each thing takes. `samples`: of each sample, by a worker that is not slow.
function durations(setting) {
  const ticks = (ms) => Math.round(ms * TICKS), one = ticks(setting.sample), samples = [];
  for (let key = 0; key < setting.batches * setting.batch; key++) {
    if (setting.shape === "varied") samples.push(Math.round(one * 3 * chance(key) ** 2)); // from 0 to three times
    else samples.push(one * (isSlow(setting, key) ? setting.factor : 1));
  }
  const slow = setting.shape === "slow_worker" ? setting.factor : 1; // worker 0 takes this many times as long
  const [collate, move, pinning, train] = [setting.collate, setting.move, setting.pinning, setting.train].map(ticks);
  return { samples, slow, collate, move, pinning, train };
}

// The threads, the clock, and the rule by which they take turns.
class Machine {
  constructor() {
    this.clock = 0;
    this.events = [];
    this.threads = []; // {steps: a generator, waits: a condition, a moment, or null at its beginning}
  }

  emit(kind, task = -1, worker = -1) {
    this.events.push([this.clock, kind, task, worker]);
  }

  start(steps) {
    this.threads.push({ steps, waits: null });
  }

  // The first thread, main, is run to its end.
  run() {
    for (let running = 0; ;) {
      const thread = this.threads[running];
      const { value, done } = thread.steps.next();
      if (done) return;
      thread.waits = value;
      running = this.next(running);
    }
  }

  next(running) {
    const threads = this.threads, count = threads.length;
    for (let turn = 0; turn < count; turn++) {
      const number = (running + turn) % count, waits = threads[number].waits;
      if (waits === null || (typeof waits === "function" && waits())) return number;
    }
    const moments = threads.map(({ waits }) => (typeof waits === "number" ? waits : Infinity));
    this.clock = Math.min(...moments);
    return moments.indexOf(this.clock);
  }

  *spend(ticks) {
    if (ticks > 0) yield this.clock + ticks;
  }
}

// The queues, and what main knows. `times`: see durations.
class Loader {
  constructor(setting, times, machine) {
    Object.assign(this, { setting, times, machine });
    this.index = Array.from({ length: setting.workers }, () => []); // index_queue of each worker: tasks
    this.results = Array.from({ length: setting.workers }, () => []); // worker_result_queue: each worker's pipe
    this.turn = 0; // the pipe that is looked at first
    this.data = []; // data_queue: [task, worker]
    this.drawn = 0; // tasks for which the sampler has drawn keys
    this.sent = 0; // _send_idx
    this.received = 0; // _rcvd_idx
    this.nextWorker = 0; // whose turn it is to get a task
    this.given = new Array(setting.workers).fill(0); // to each worker: tasks sent, and not received yet
    this.info = new Map(); // _task_info: task -> {worker, arrived, early}
  }

  // ---- main

  *main() {
    const { setting, machine } = this;
    if (setting.workers) {
      for (let number = 0; number < setting.prefetch * setting.workers; number++) this.putIndex();
      machine.emit("PRIMED");
    }
    for (;;) {
      machine.emit("ASKED");
      const task = setting.workers ? yield* this.nextTask() : yield* this.alone();
      if (task === null) break;
      if (setting.workers) this.take(task);
      machine.emit("YIELDED", task);
      yield* machine.spend(this.times.train);
    }
    machine.emit("EPOCH_END");
  }

  // num_workers=0: main makes the batch when it is asked for.
  *alone() {
    if (!this.drawKeys()) return null;
    const task = this.drawn - 1;
    yield* this.make(task, -1);
    if (this.setting.pin) yield* this.pin(task, -1);
    return task;
  }

  drawKeys() {
    if (this.drawn === this.setting.batches) return false;
    this.machine.emit("KEYS_DRAWN", this.drawn++);
    return true;
  }

  // Send one task, if the sampler has keys for one.
  putIndex() {
    if (!this.drawKeys()) return;
    const task = this.sent, worker = this.chooseWorker();
    this.info.set(task, { worker, arrived: false, early: false });
    this.given[worker]++;
    this.machine.emit("DISPATCHED", task, worker);
    this.machine.emit("PUT INDEX", task, worker);
    this.index[worker].push(task);
    this.sent++;
  }

  // In turn; without order, the next one that has room.
  chooseWorker() {
    for (;;) {
      const worker = this.nextWorker;
      this.nextWorker = (worker + 1) % this.setting.workers;
      if (this.setting.in_order || this.given[worker] < this.setting.prefetch) return worker;
    }
  }

  // Wait until a batch can be yielded: the next one in order, or any if order does not matter.
  *nextTask() {
    for (;;) {
      while (this.received < this.sent && !this.info.has(this.received)) this.received++; // yielded out of order
      if (this.received === this.sent) return null;
      if (this.info.get(this.received).arrived) return this.received;
      const task = yield* this.receive();
      if (!this.setting.in_order) return task;
    }
  }

  *receive() {
    const { machine, setting } = this;
    const [task, worker] = setting.pin ? yield* this.getData() : yield* this.getResult();
    machine.emit("RECEIVED", task, worker);
    this.given[worker]--;
    const info = this.info.get(task);
    info.arrived = true;
    info.early = setting.in_order && task !== this.received;
    if (info.early) machine.emit("STORED", task, worker); // into the reorder buffer
    return task;
  }

  // Refill, then hand out a batch.
  take(task) {
    this.putIndex();
    const info = this.info.get(task);
    this.info.delete(task);
    if (info.early) this.machine.emit("RELEASED", task, info.worker);
    if (task === this.received) this.received++;
  }

  *getData() {
    if (!this.data.length) yield () => this.data.length > 0;
    const [task, worker] = this.data.shift();
    this.machine.emit("GOT DATA", task);
    return [task, worker];
  }

  // The workers' pipes are served in turn, one message each.
  *getResult() {
    const workers = this.setting.workers, any = () => this.results.some((pipe) => pipe.length);
    if (!any()) yield any;
    while (!this.results[this.turn].length) this.turn = (this.turn + 1) % workers;
    const worker = this.turn, task = this.results[worker].shift();
    this.turn = (worker + 1) % workers;
    this.machine.emit("ARRIVED RESULT", task, worker);
    yield* this.machine.spend(this.times.move); // unpacks it
    this.machine.emit("GOT RESULT", task, worker);
    return [task, worker];
  }

  // ---- the others

  *worker(worker) {
    const { machine, index } = this;
    for (;;) {
      if (!index[worker].length) yield () => index[worker].length > 0;
      const task = index[worker].shift();
      machine.emit("GOT INDEX", task, worker);
      yield* this.make(task, worker);
      machine.emit("PUT RESULT", task, worker);
      yield* machine.spend(this.times.move); // packs it
      machine.emit("SENT RESULT", task, worker);
      this.results[worker].push(task);
    }
  }

  // Fetch the samples one by one, and collate them.
  *make(task, worker) {
    const { machine, times, setting } = this;
    machine.emit("FETCH_BEGIN", task, worker);
    for (let key = task * setting.batch; key < (task + 1) * setting.batch; key++) {
      yield* machine.spend(times.samples[key] * (worker === 0 ? times.slow : 1));
    }
    machine.emit("FETCH_END", task, worker);
    machine.emit("COLLATE_BEGIN", task, worker);
    yield* machine.spend(times.collate);
    machine.emit("COLLATE_END", task, worker);
  }

  *pin(task, worker) {
    this.machine.emit("PIN_BEGIN", task, worker);
    yield* this.machine.spend(this.times.pinning);
    this.machine.emit("PIN_END", task, worker);
  }

  *pinThread() {
    for (;;) {
      const [task, worker] = yield* this.getResult();
      yield* this.pin(task, worker);
      this.machine.emit("PUT DATA", task);
      this.data.push([task, worker]);
    }
  }
}

// The events of one epoch, in order.
function simulate(setting) {
  const machine = new Machine(), loader = new Loader(setting, durations(setting), machine);
  machine.start(loader.main());
  for (let worker = 0; worker < setting.workers; worker++) machine.start(loader.worker(worker));
  if (setting.workers && setting.pin) machine.start(loader.pinThread());
  machine.run();
  return machine.events;
}
