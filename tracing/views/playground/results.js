// What the events of a run mean: what became of each batch, what each thread did from when to when, and the numbers.
//
// Legend
//    run       everything about one setting: see makeRun
//    history   {put: 120, fetchBegin: 120, ...} of a task, in ticks
//    bar       {begin, end, look: "fetch", task}
//    place     ["index", 2]: where a batch is
"use strict";

// Event -> what it is called in the history of a task.
const HOPS = {
  "PUT INDEX": "put", "GOT INDEX": "taken", FETCH_BEGIN: "fetchBegin", FETCH_END: "fetchEnd", COLLATE_END: "made",
  "SENT RESULT": "sent", "ARRIVED RESULT": "arrived", "GOT RESULT": "got", PIN_BEGIN: "pinBegin", PIN_END: "pinned",
  "PUT DATA": "putData", "GOT DATA": "gotData", RECEIVED: "received", STORED: "stored", YIELDED: "yielded",
};

function makeRun(setting) {
  const events = simulate(setting), histories = [], asked = [];
  for (const [time, kind, task, worker] of events) {
    if (kind === "ASKED") asked.push(time);
    if (task < 0) continue;
    const history = (histories[task] ??= { task, worker: -1, late: Infinity });
    if (worker >= 0) history.worker = worker;
    if (HOPS[kind]) history[HOPS[kind]] = time;
  }
  const order = histories.filter((history) => history).sort((one, other) => one.yielded - other.yielded);
  order.forEach((history, at) => {
    history.asked = asked[at];
    history.trained = asked[at + 1]; // the end of its training step
    history.gone = order[at + 1]?.yielded ?? history.trained; // until then the loop's variable holds it
  });
  const run = { setting, events, histories, order, end: events.at(-1)[0] };
  run.times = [...new Set(events.map(([time]) => time))];
  run.lanes = lanesOf(run);
  run.depths = depthsOf(run);
  return Object.assign(run, numbersOf(run));
}

// ---- lanes: main, the pin thread if there is one, the workers

function lanesOf(run) {
  const { workers, pin } = run.setting, threaded = workers > 0;
  const main = { name: "main", bars: [] }, pinThread = { name: "pin thread", bars: [] };
  const others = Array.from({ length: workers }, (_, worker) => ({ name: `worker ${worker}`, worker, bars: [] }));
  const add = (lane, look, task, begin, end) => { if (end > begin) lane.bars.push({ look, task, begin, end }); };
  for (const each of run.order) {
    const task = each.task, maker = threaded ? others[each.worker] : main, unpacker = pin ? pinThread : main;
    add(main, "train", task, each.yielded, each.trained);
    if (threaded) add(main, "wait", task, each.asked, each.yielded);
    if (threaded) add(unpacker, "unpack", task, each.arrived, each.got);
    add(maker, "fetch", task, each.fetchBegin, each.fetchEnd);
    add(maker, "collate", task, each.fetchEnd, each.made);
    if (threaded) add(maker, "pack", task, each.made, each.sent);
    if (pin) add(threaded ? pinThread : main, "pin", task, each.pinBegin, each.pinned);
  }
  const lanes = [main, ...(threaded && pin ? [pinThread] : []), ...others];
  const waits = (bar) => Number(bar.look === "wait"); // drawn first: main unpacks other batches while it waits for one
  for (const { bars } of lanes) bars.sort((one, other) => one.begin - other.begin || waits(other) - waits(one));
  return lanes;
}

// ---- how many batches there are, whenever that changes: [tick, in memory, of these in the reorder buffer]

function depthsOf(run) {
  const changes = [];
  for (const each of run.order) {
    changes.push([each.made, 1, 0], [each.gone, -1, 0]);
    if (each.stored !== undefined) changes.push([each.stored, 0, 1], [each.yielded, 0, -1]);
  }
  changes.sort((one, other) => one[0] - other[0] || one[1] + one[2] - other[1] - other[2]); // what goes, goes first
  const depths = [[0, 0, 0]];
  for (const [time, made, stored] of changes) {
    const [last, held, early] = depths.at(-1);
    if (last === time) depths.pop();
    depths.push([time, held + made, early + stored]);
  }
  return depths;
}

const depthAt = (run, time) => run.depths[Math.max(0, countUpTo(run.depths, time, (depth) => depth[0]) - 1)];

// How many elements of an ascending array are at most `value`.
function countUpTo(array, value, key = (each) => each) {
  let low = 0, high = array.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(array[middle]) <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// ---- the numbers

function numbersOf(run) {
  const { setting, order, end } = run, sum = (values) => values.reduce((total, value) => total + value, 0);
  const lasted = (look, lanes) => sum(lanes.flatMap(({ bars }) => bars.filter((bar) => bar.look === look)
    .map((bar) => bar.end - bar.begin)));
  const of = (time) => (end ? time / end : 0);
  const [main, ...others] = run.lanes, workers = others.filter(({ worker }) => worker !== undefined);
  const work = sum(["fetch", "collate", "pack"].map((look) => lasted(look, workers)));
  const numbers = {
    rate: end ? (setting.batches * 1000 * TICKS) / end : 0, // batches a second
    trains: of(lasted("train", [main])), // shares of main's time
    unpacks: of(lasted("unpack", [main])),
    busy: setting.workers ? of(work) / setting.workers : 0, // the share of the workers' time
    pins: of(lasted("pin", others) + lasted("unpack", others)), // the share of the pin thread's time
    peak: Math.max(...run.depths.map((depth) => depth[1])), // batches in memory
  };
  numbers.waits = Math.max(0, 1 - numbers.trains - numbers.unpacks); // without workers: makes batches
  const held = of(sum(order.map((each) => heldWithin(run, each.asked, each.yielded)))); // waits, though others are there
  return { ...numbers, limit: limitOf(setting, { ...numbers, held }) };
}

// As the report (tracing/analysis/report) would call it.
function limitOf(setting, { waits, unpacks, pins, busy, held }) {
  if (!setting.workers) return "main makes the batches itself, and cannot train meanwhile";
  if (Math.max(waits, unpacks) < 0.05) return "the training step is the limit";
  if (unpacks > waits) return "moving batches is the limit";
  if (pins > 0.9) return "the pin thread is the limit";
  if (held > waits / 2) return "one batch holds up the others";
  return busy > 0.8 ? "the workers are the limit" : "the workers have too few tasks ahead";
}

// For how long of this time the reorder buffer has something in it.
function heldWithin(run, begin, end) {
  let held = 0;
  for (let at = Math.max(0, countUpTo(run.depths, begin, (depth) => depth[0]) - 1); at < run.depths.length; at++) {
    const [since, , stored] = run.depths[at], until = run.depths[at + 1]?.[0] ?? end;
    if (since >= end) break;
    if (stored) held += Math.min(end, until) - Math.max(begin, since);
  }
  return held;
}

// ---- where a batch is. null: nowhere yet, or gone

function placeOf(history, time) {
  const { worker } = history, after = (hop) => history[hop] !== undefined && time >= history[hop];
  if (time >= history.gone) return null;
  if (after("yielded")) return ["main", 0];
  if (worker < 0) return after("fetchBegin") ? ["main", 0] : null;
  if (!after("put")) return null;
  if (after("stored")) return ["reorder", 0];
  if (after("received")) return ["main", 0];
  if (after("putData") && !after("gotData")) return ["data", 0];
  if (after("arrived")) return [history.pinBegin !== undefined ? "pin" : "main", 0];
  if (after("sent")) return ["result", worker];
  return after("taken") ? ["worker", worker] : ["index", worker];
}

// What is going on, in a sentence.
function sentenceOf(run, time) {
  const at = `At ${(time / TICKS).toFixed(1)} ms `, places = {};
  const now = run.order[countUpTo(run.order, time, (each) => each.asked) - 1];
  if (time >= run.end || !now) return `${at}the epoch is over.`;
  for (const history of run.histories) {
    const place = placeOf(history, time);
    if (place) (places[place[0]] ??= []).push(history.task);
  }
  const training = time >= now.yielded, alone = !run.setting.workers;
  let doing = `main trains on batch ${now.task}`;
  if (!training && alone) doing = `main makes batch ${now.task}`;
  else if (!training && now.arrived <= time && !run.setting.pin) doing = `main unpacks batch ${now.task}`;
  else if (!training) doing = `main waits for ${run.setting.in_order ? `batch ${now.task}` : "any batch"}`;
  const list = (tasks) => (tasks.length > 6 ? `${tasks.length} batches` : tasks.join(", "));
  const rest = [];
  if (!training && !alone && run.setting.in_order && time < now.sent) {
    const behind = now.taken <= time ? "is making" : "has not begun";
    rest.push(`worker ${now.worker} ${behind} it`);
  }
  if (places.reorder) rest.push(`in the reorder buffer: ${list(places.reorder)}`);
  if (places.result) rest.push(`in the result queue: ${list(places.result)}`);
  if (places.index) rest.push(`tasks that wait for their worker: ${list(places.index)}`);
  return `${at}${[doing, ...rest].join("; ")}.`;
}
