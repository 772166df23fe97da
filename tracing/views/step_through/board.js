// Draws one state of one loader, from the slots of tracing.views.step_through.state_changes and nothing else.
// Only what has changed is drawn again (equal values are the same object).
"use strict";

const element = (tag, className = "", ...children) => {
  const made = document.createElement(tag);
  made.className = className;
  made.append(...children);
  return made;
};

// As tracing.trace.words.duration, to the digit: Python rounds halves to the even neighbour, toFixed rounds them up.
function fixed(number, digits) {
  const half = Number.isInteger(number * 2 ** (digits + 1)) && !Number.isInteger(number * 2 ** digits);
  const scale = 10 ** digits, below = Math.floor(number * scale);
  return half ? ((below + (below % 2)) / scale).toFixed(digits) : number.toFixed(digits);
}

function duration(ns) {
  if (ns < 999.5) return `${fixed(Math.max(0, ns), 0)} ns`;
  if (ns < 999.5e3) return `${fixed(ns / 1e3, 0)} µs`;
  for (const [unit, size, limit] of [["ms", 1e6, 999.5e6], ["s", 1e9, 999.5e9], ["min", 60e9, 6000e9]]) {
    if (ns < limit) {
      const number = ns / size;
      return `${fixed(number, number < 9.995 && unit === "s" ? 2 : number < 99.95 ? 1 : 0)} ${unit}`;
    }
  }
  return `${fixed(ns / 3600e9, 1)} h`;
}

// A batch, or a message without one. A chip keeps its `key` wherever it goes.
function chip(label, key = "") {
  const made = element("span", "chip", String(label));
  if (typeof label === "number") {
    const [colour, ink] = DATA.colours[label % DATA.colours.length];
    made.style.background = colour;
    made.style.color = ink;
    made.dataset.task = label;
    made.setAttribute("aria-label", `batch ${label}`);
  } else {
    made.classList.add("message");
  }
  if (key) made.dataset.key = key;
  return made;
}

const TONES = {
  good: ["fetching", "collating", "sending", "pinning", "passing on", "training"],
  wait: ["waiting"],
  bad: ["dead", "raised"],
};
const toneOf = (status) => Object.keys(TONES).find((tone) => TONES[tone].includes(status)) ?? "still";

const HEADS = [
  ["index_queue", "buffer", "pipe"], ["workers", "load samples, make batches"], ["worker_result_queue", "buffer", "pipe"],
];
const COUNTS = ["_send_idx", "_rcvd_idx", "_tasks_outstanding", "yielded"];
const doing = () => element("p", "doing", element("span", "status"), element("time", "since"), element("span", "task"));

class Board {
  constructor(root) {
    this.root = root;
    this.places = {}; // "worker 0" -> the element that shows this thread or queue
    this.shown = new Map(); // slot -> the value that is drawn
    this.iterator = null;
  }

  // Draw the slots of one iterator; `get` reads them. `now`: ns after the trace's first event.
  show(iterator, get, now) {
    const workers = get("about") ? get("about")[2] : -1;
    if (iterator !== this.iterator || workers !== this.workers) this.build(iterator, workers);
    if (workers < 0) return;
    const changed = (name, draw) => {
      const value = get(name);
      if (this.shown.has(name) && this.shown.get(name) === value) return;
      this.shown.set(name, value);
      draw(value);
    };
    for (let worker = 0; worker < workers; worker++) {
      changed(`index ${worker}`, (queue) => this.queue(`index ${worker}`, queue, worker));
      changed(`worker ${worker}`, (value) => this.worker(worker, value));
      changed(`worker ${worker} slots`, (slots) => this.slots(worker, slots ?? []));
      changed(`result ${worker}`, (queue) => this.queue(`result ${worker}`, queue, worker));
      this.since(`worker ${worker}`, get(`worker ${worker} since`), now);
    }
    changed("pin", (value) => this.pin(value));
    this.since("pin thread", get("pin since"), now);
    changed("data", (queue) => this.queue("data", queue, -1));
    changed("reorder", (value) => this.reorder(value));
    changed("main", (value) => this.main(value));
    this.since("main", get("main since"), now);
    changed("counts", (value) => value.forEach((count, at) => { this.counts[at].textContent = count; }));
    changed("shutdown", (step) => this.line("shutdown", step && `shutdown: ${step}`));
    changed("error", (error) => this.line("error", error === null ? "" : `raised: ${error}`));
    this.tasks(get.tasks());
  }

  // Frame the thread that acts.
  acts(name) {
    for (const [place, where] of Object.entries(this.places)) where.classList.toggle("acts", place === name);
  }

  // ---- what stays

  // workers: their number; -1 for a loader that does not exist at this event.
  build(iterator, workers) {
    this.iterator = iterator;
    this.workers = workers;
    this.shown.clear();
    this.places = {};
    const size = workers <= 2 ? "tall few" : workers <= 4 ? "tall" : workers <= 8 ? "middle" : "low";
    const flow = element("div", "flow"), board = element("div", `loader ${size}`, flow);
    if (workers >= 0) board.prepend(this.mainBox());
    if (workers < 0) flow.append(element("p", "alone", "Not there at this event: this loader has not begun, or has ended."));
    if (workers === 0) flow.append(element("p", "alone", "num_workers=0: main does all the work, and there are no queues."));
    if (workers > 0) {
      flow.append(element("div", "lane heads", ...HEADS.map(([name, ...parts]) =>
        element("div", "", element("h3", "", name.replaceAll("_", "_\u200b")), ...parts.map((part) => element("small", "", part))))));
      for (let worker = 0; worker < workers; worker++) flow.append(this.lane(worker));
      flow.append(this.back(DATA.iterators[iterator].pinned));
      const hint = "task → worker: sent, not yet yielded";
      board.append(this.box("info", "_task_info", hint, element("p", "chips")));
    }
    this.root.replaceChildren(board);
  }

  box(name, title, hint, ...children) {
    const head = element("h3", "", title, element("small", "", hint));
    const made = element("div", `box ${name.split(" ")[0]}`, head, ...children);
    this.places[name] = made;
    return made;
  }

  mainBox() {
    const counts = element("dl", "counts");
    this.counts = COUNTS.map((name) => {
      counts.append(element("dt", "", name), element("dd"));
      return counts.lastChild;
    });
    const lines = ["thread", "shutdown", "error"].map((name) => element("p", name));
    return this.box("main", "main", "the training loop", doing(), counts, ...lines);
  }

  // From the workers' results back to main; drawn from right to left.
  back(pinned) {
    const row = element("div", "lane back");
    row.append(this.box("reorder", "reorder buffer", "came early", element("p", "chips"), element("p", "gap")));
    if (pinned) {
      row.append(this.box("data", "data_queue", "pinned", element("p", "chips")));
      row.append(this.box("pin thread", "pin thread", "page-locks", doing()));
    }
    return row;
  }

  lane(worker) {
    const queue = (name) => element("div", `queue ${name}`, element("span", "buffer"), element("span", "pipe"));
    const index = queue("index"), result = queue("result");
    const lines = [doing(), element("p", "process"), element("p", "slots")];
    const work = element("div", "worker", element("b", "id", String(worker)), ...lines);
    for (const [name, where] of [["index", index], ["worker", work], ["result", result]]) {
      this.places[`${name} ${worker}`] = where;
    }
    this.places[`feeder index ${worker}`] = index.firstChild;
    this.places[`feeder result ${worker}`] = result.firstChild;
    return element("div", "lane", index, work, result);
  }

  // ---- what moves

  queue(name, [buffer, pipe, pickling], worker) {
    const where = this.places[name];
    if (!where) return;
    const key = (label) => (typeof label === "number" ? `${label}` : `${label} ${worker}`); // each worker has its own STOP
    const chips = (labels) => labels.map((label) => chip(label, key(label)));
    const buffered = chips(buffer);
    if (pickling && buffered.length) buffered[0].classList.add("pickling");
    if (name === "data") { // has no pipe, and flows to the left
      where.querySelector(".chips").replaceChildren(...chips([...pipe, ...buffer]));
      return;
    }
    where.querySelector(".buffer").replaceChildren(...buffered.reverse());
    where.querySelector(".pipe").replaceChildren(...chips(pipe).reverse());
  }

  status(where, words, task) {
    const status = where.querySelector(".status");
    status.textContent = words;
    status.dataset.tone = toneOf(words);
    where.querySelector(".task").replaceChildren(...task);
  }

  worker(worker, [status, task, pid, exit, done]) {
    const where = this.places[`worker ${worker}`];
    where.classList.toggle("over", ["dead", "reaped", "stopped"].includes(status));
    this.status(where, status, task >= 0 ? [chip(task, `${task}`)] : []);
    const process = [element("span", "", `${done} done`)];
    if (exit !== null) process.unshift(element("span", "exit", `exit code ${exit}`));
    if (pid) process.push(element("span", "pid", `pid ${pid}`));
    where.querySelector(".process").replaceChildren(...process);
    where.title = pid ? `worker ${worker}, pid ${pid}` : `worker ${worker}`;
  }

  // The memory that it shares with main: which batch is in each slot, on its way or lent.
  slots(worker, slots) {
    const drawn = slots.map(([status, task], slot) => {
      const lies = status === "filled" || status === "lent";
      const made = element("i", status, lies ? String(task) : "");
      made.title = `slot ${slot}: ${status}${task >= 0 ? `, batch ${task}` : ""}`;
      if (lies) [made.style.background, made.style.color] = DATA.colours[task % DATA.colours.length];
      return made;
    });
    this.places[`worker ${worker}`].querySelector(".slots").replaceChildren(...(drawn.length ? ["slots", ...drawn] : []));
  }

  pin([status, task]) {
    const where = this.places["pin thread"];
    if (where) this.status(where, status, task >= 0 ? [chip(task, `${task}`)] : []);
  }

  main([status, waitsFor, inHand, actor, trainsOn]) {
    const task = [];
    if (trainsOn >= 0) task.push("on ", chip(trainsOn, `${trainsOn}`));
    if (waitsFor >= 0) task.push("for ", element("span", "chip missing", `${waitsFor}`));
    if (inHand >= 0) task.push("with ", chip(inHand, `${inHand}`));
    this.status(this.places.main, status, task);
    const thread = actor < 0 ? "" : `${DATA.threads[actor]} · pid ${DATA.pids[actor]}`;
    this.places.main.querySelector(".thread").textContent = thread;
  }

  reorder([waitsFor, ...stored]) {
    const where = this.places.reorder;
    if (!where) return;
    where.querySelector(".chips").replaceChildren(...stored.map((task) => chip(task, `${task}`)));
    const next = stored.includes(waitsFor), words = next ? `${waitsFor} is next` : `waits for ${waitsFor}`;
    where.querySelector(".gap").textContent = stored.length ? words : "";
    where.classList.toggle("held", stored.length > 0 && !next);
  }

  tasks(entries) {
    const before = this.shown.get("tasks") ?? [];
    const same = ([task, value], at) => before[at]?.[0] === task && before[at]?.[1] === value;
    if (!this.places.info || (entries.length === before.length && entries.every(same) && this.shown.has("tasks"))) return;
    this.shown.set("tasks", entries);
    const drawn = entries.map(([task, [worker, status]]) => {
      const words = status === "outstanding" ? `→ ${worker}` : `→ ${worker} ${status}`;
      return element("span", `entry ${status.replace(" ", "-")}`, chip(task), words);
    });
    this.places.info.querySelector(".chips").replaceChildren(...drawn);
  }

  since(name, time, now) {
    const where = this.places[name]?.querySelector(".since");
    const words = time === null ? "" : duration(now - time);
    if (where && where.textContent !== words) where.textContent = words;
  }

  line(name, words) {
    this.places.main.querySelector(`.${name}`).textContent = words;
  }
}

// Where each batch is on the screen. One that is in two places (batch 3 of two epochs, say) is left out.
function whereabouts(root) {
  const found = new Map();
  for (const each of root.querySelectorAll("[data-key]")) {
    found.set(each.dataset.key, found.has(each.dataset.key) ? null : [each, each.getBoundingClientRect()]);
  }
  return found;
}

// Animate every batch from where it was to where it is now.
function travel(before, after, milliseconds) {
  for (const [key, place] of after) {
    if (!place) continue;
    const [chip, to] = place, from = before.get(key)?.[1];
    if (from === undefined) {
      chip.animate([{ opacity: 0, transform: "scale(.3)" }, {}], { duration: milliseconds, easing: "ease-out" });
    } else if (Math.abs(from.left - to.left) + Math.abs(from.top - to.top) > 1) {
      const begin = `translate(${from.left - to.left}px, ${from.top - to.top}px)`;
      chip.animate([{ transform: begin, zIndex: 9 }, { zIndex: 9 }], { duration: milliseconds, easing: "ease-in-out" });
    }
  }
}
