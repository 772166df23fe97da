// Reads the page's data, goes to an event, and shows the state after it, its words and its line of source.
// Legend: k, the number of an event in the trace (as in trace.state(k)); at = k - DATA.first, its number in this page.
"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);
const EVENTS = DATA.events, COUNT = EVENTS.kind.length, FIRST = DATA.first;
const NOW = -1; // instead of a value: the time of the event
const $ = (id) => document.getElementById(id);

// The slots after event `at`. What a step overwrites is kept, so that a step back can restore it.
class States {
  constructor({ slots, values, patches }) {
    Object.assign(this, { slots, values, patches });
    this.number = new Map(slots.map((name, number) => [name, number]));
    this.now = new Array(slots.length).fill(null);
    this.undo = [];
    this.at = -1;
    this.tasksOf = {}; // iterator -> [[task, slot], ...] of its task_info, ascending
    slots.forEach((name, number) => {
      const [, iterator, task] = /^(\d+) task (\d+)$/.exec(name) ?? [];
      if (task !== undefined) (this.tasksOf[iterator] ??= []).push([Number(task), number]);
    });
    Object.values(this.tasksOf).forEach((tasks) => tasks.sort((one, other) => one[0] - other[0]));
  }

  go(at) {
    while (this.at < at) this.forward(++this.at);
    while (this.at > at) this.backward(this.at--);
  }

  forward(at) {
    const patch = this.patches[at], undo = [];
    for (let i = 0; i < patch.length; i += 2) {
      undo.push(patch[i], this.now[patch[i]]);
      this.now[patch[i]] = patch[i + 1] === NOW ? EVENTS.time[at] : this.values[patch[i + 1]];
    }
    this.undo[at] ??= undo;
  }

  backward(at) {
    const undo = this.undo[at];
    for (let i = 0; i < undo.length; i += 2) this.now[undo[i]] = undo[i + 1];
  }

  get(name) {
    return this.now[this.number.get(name)] ?? null;
  }

  of(iterator) {
    const get = (name) => this.get(`${iterator} ${name}`);
    get.tasks = () => (this.tasksOf[iterator] ?? [])
      .filter(([, slot]) => this.now[slot] !== null).map(([task, slot]) => [task, this.now[slot]]);
    return get;
  }
}

const states = new States(DATA.changes);
const board = new Board($("board"));
const still = matchMedia("(prefers-reduced-motion: reduce)");
let k = FIRST;
let playing = null; // a timer

// ---- which events are stepped through

let chosen = null; // their numbers, ascending; null: all of them

const shownLoader = () => ($("loader").value === "" ? -1 : Number($("loader").value));

function choose() {
  const who = $("who").value, loader = shownLoader();
  const batch = /^\s*\d+\s*$/.test($("batch").value) ? Number($("batch").value) : -1;
  const fits = (at) =>
    (who === "" || DATA.names[EVENTS.actor[at]] === who) &&
    (batch < 0 || EVENTS.task[at] === batch) &&
    (loader < 0 || EVENTS.iterator[at] === loader);
  chosen = null;
  if (who !== "" || batch >= 0 || loader >= 0) {
    chosen = [];
    for (let at = 0; at < COUNT; at++) if (fits(at)) chosen.push(FIRST + at);
  }
  $("found").textContent = chosen === null ? "" : `${chosen.length.toLocaleString("en")} events`;
  $("clear").hidden = chosen === null;
  $("follow").textContent = batch < 0 ? "" : `#board .chip:not([data-task="${batch}"]) { opacity: .3 }`;
  drawMarks();
  show(k);
}

// The first of `numbers` (ascending) after k, or, backwards, the last before it; null if there is none.
function beyond(numbers, steps) {
  let low = 0, high = numbers.length; // numbers before `low` are < k (backwards), <= k (forwards)
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps > 0 ? numbers[middle] <= k : numbers[middle] < k) low = middle + 1;
    else high = middle;
  }
  const found = steps > 0 ? Math.min(low + steps - 1, numbers.length - 1) : Math.max(low + steps, 0);
  return (steps > 0 ? low < numbers.length : low > 0) ? numbers[found] : null;
}

function step(steps) {
  const to = chosen === null ? k + steps : beyond(chosen, steps);
  if (to !== null) go(to, true);
}

function end(last) {
  const numbers = chosen?.length ? chosen : [FIRST, FIRST + COUNT - 1];
  go(numbers.at(last ? -1 : 0));
}

function jump(to, steps) {
  const found = beyond(to, steps);
  if (found !== null) go(found);
}

// ---- showing one event

function go(to, moving = false) {
  const before = moving && !still.matches && pace() > 60 ? whereabouts($("board")) : null;
  show(Math.max(FIRST, Math.min(FIRST + COUNT - 1, to)));
  if (before) travel(before, whereabouts($("board")), Math.min(260, 0.8 * pace()));
  clearTimeout(go.link);
  go.link = setTimeout(link, 250);
}

function show(to) {
  k = to;
  const at = k - FIRST;
  states.go(at);
  const loaders = states.get("loaders"), of = EVENTS.iterator[at];
  const iterator = shownLoader() >= 0 ? shownLoader() : loaders.includes(of) ? of : loaders[0];
  const get = loaders.includes(iterator) ? states.of(iterator) : () => null; // others keep old values
  board.show(iterator, get, EVENTS.time[at]);
  const iterates = get("main")?.[3] === EVENTS.actor[at]; // main, or a worker with a loader inside its dataset
  board.acts(iterator !== of ? "" : iterates ? "main" : DATA.names[EVENTS.actor[at]]);
  describe(at);
  about(get, loaders);
  around();
  source(at);
  $("scrub").value = k;
  $("scrub").setAttribute("aria-valuetext", `event ${k}: ${$("sentence").textContent}`);
  if (document.activeElement !== $("number")) $("number").value = k;
}

// An event in words, the batch as a chip.
function words(at) {
  const before = EVENTS.phrases[EVENTS.before[at]], task = EVENTS.task[at];
  if (EVENTS.after[at] < 0) return [before];
  return [before, chip(task >= 0 ? task : DATA.labels[task] ?? "?"), EVENTS.phrases[EVENTS.after[at]]];
}

const seconds = (ns) => `${(ns / 1e9).toFixed(6)} s`;

function describe(at) {
  const [time, who, what] = $("sentence").children;
  time.textContent = seconds(EVENTS.time[at]);
  who.textContent = DATA.names[EVENTS.actor[at]];
  what.replaceChildren(...words(at));
  const facts = [element("code", "kind", DATA.kinds[EVENTS.kind[at]])];
  if (at > 0) facts.push(`${duration(EVENTS.time[at] - EVENTS.time[at - 1])} after the event before`);
  if (EVENTS.values[at]) facts.push(EVENTS.values[at]);
  if (EVENTS.texts[at] !== undefined) facts.push(element("span", "text", textOf(EVENTS.texts[at])));
  facts.push(`thread ${DATA.threads[EVENTS.actor[at]]} of process ${DATA.pids[EVENTS.actor[at]]}`);
  $("facts").title = textOf(EVENTS.texts[at] ?? "");
  $("facts").replaceChildren(...facts.flatMap((fact, number) => (number ? [" · ", fact] : [fact])));
  document.body.classList.toggle("alarm", DATA.marks.errors.includes(k));
}

const textOf = (text) => (typeof text === "string" ? text : JSON.stringify(text));

// The loader's configuration, and which loaders there are now.
function about(get, loaders) {
  const facts = get("about"), config = get("config") ?? {};
  const key = [facts, config, loaders];
  if (about.shown?.every((each, number) => each === key[number])) return;
  about.shown = key;
  const line = [];
  if (facts) {
    const [loader, epoch, workers, alive] = facts;
    line.push(`loader ${loader}`, `epoch ${epoch}`, workers === 1 ? "1 worker" : `${workers || "no"} workers`);
    if (workers && config.prefetch_factor) line.push(`prefetch ${config.prefetch_factor}`);
    if (config.in_order === false) line.push("not in order");
    if (config.package && config.package !== "minidl") line.push(config.package);
    if (!alive) line.push("shut down");
  }
  else line.push(DATA.iterators[shownLoader()].name);
  if (loaders.length > 1) line.push(`at once: ${loaders.map((each) => DATA.iterators[each].name).join(" and ")}`);
  const [summary, list] = $("about").children;
  summary.textContent = line.join(" · ");
  const rows = Object.entries(config).map(([name, value]) => [element("dt", "", name), element("dd", "", textOf(value))]);
  list.replaceChildren(...rows.flat());
}

function source(at) {
  const site = EVENTS.site[at], [title, panes] = $("source").children;
  const foreign = DATA.iterators[EVENTS.iterator[at]].package !== "minidl";
  if (source.shown === `${site} ${foreign}`) return;
  source.shown = `${site} ${foreign}`;
  panes.querySelector(".shown")?.classList.remove("shown");
  panes.querySelector(".emits")?.classList.remove("emits");
  if (site < 0) {
    title.textContent = "the source of minidl is not available";
    return;
  }
  const [number, line] = DATA.sites[site], { file, name, first } = DATA.functions[number];
  title.replaceChildren(element("code", "", `${file}:${line}`), ` in ${name}`);
  const add = (words) => title.append(element("small", "", words));
  if (foreign) add("torch's own loader did this: here is the line of minidl that does the same");
  const code = (source[number] ??= paneOf(DATA.functions[number], panes)), emitting = code.children[line - first];
  code.classList.add("shown");
  emitting.classList.add("emits");
  code.scrollTop = emitting.offsetTop - 0.4 * code.clientHeight;
}

// A function's text. Once shown, it stays in the page.
function paneOf({ first, lines }, panes) {
  const indents = lines.filter((each) => each.trim()).map((each) => each.search(/\S/));
  const code = element("pre"), indent = Math.min(...indents);
  code.tabIndex = 0;
  code.append(...lines.map((each, at) => {
    const row = element("div", "line", element("span", "number", String(first + at)), element("code"));
    row.lastChild.innerHTML = each.slice(indent) || " ";
    row.lastChild.style.setProperty("--hang", `${Math.max(0, each.search(/\S/)) - indent + 4}ch`);
    return row;
  }));
  panes.append(code);
  return code;
}

const AROUND = 4; // events before; twice as many after

function around() {
  const numbers = [];
  const near = chosen === null ? null : chosen.findLastIndex((each) => each <= k);
  for (let offset = -AROUND; offset <= 2 * AROUND; offset++) {
    const number = chosen === null ? k + offset : chosen[near + offset];
    if (number >= FIRST && number < FIRST + COUNT) numbers.push(number);
  }
  // A step moves them all by one: those that stay are not touched, for laying them out is what costs time.
  const list = $("around").lastElementChild, rows = (around.rows ??= new Map());
  for (const [number, row] of rows) {
    if (numbers.includes(number)) continue;
    row.remove();
    rows.delete(number);
  }
  numbers.forEach((number, place) => {
    if (!rows.has(number)) rows.set(number, rowOf(number));
    const row = rows.get(number);
    if (list.children[place] !== row) list.insertBefore(row, list.children[place] ?? null);
    if (number === k) row.firstChild.setAttribute("aria-current", "step");
    else row.firstChild.removeAttribute("aria-current");
  });
}

function rowOf(number) {
  const at = number - FIRST;
  const who = element("b", "", DATA.names[EVENTS.actor[at]]), what = element("span", "words", ...words(at));
  const row = element("button", "", element("span", "number", String(number)), who, what);
  row.dataset.k = number;
  row.tabIndex = -1;
  return element("li", "", row);
}
