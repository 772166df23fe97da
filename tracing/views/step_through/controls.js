// The controls: play, the slider and its marks, buttons, keys, and the link to an event (#k=123).
"use strict";

const RATES = [...$("speed").options].map((option) => option.value);
const pace = () => 1000 / Number($("speed").value); // ms between two events

function play(on) {
  clearTimeout(playing);
  playing = null;
  if (on) {
    if (k === FIRST + COUNT - 1) end(false);
    const next = () => {
      const before = k;
      step(1);
      if (k === before) play(false);
      else playing = setTimeout(next, pace());
    };
    playing = setTimeout(next, pace());
  }
  document.body.classList.toggle("playing", on);
  $("play").setAttribute("aria-label", on ? "Pause" : "Play");
  $("event").setAttribute("aria-live", on ? "off" : "polite"); // too fast to be read out
}

// ---- marks under the slider: errors, early batches, epochs, and the chosen events

function drawMarks() {
  const canvas = $("marks"), scale = devicePixelRatio || 1;
  canvas.width = canvas.clientWidth * scale;
  canvas.height = canvas.clientHeight * scale;
  const picture = canvas.getContext("2d");
  const thumb = 16 * scale, room = canvas.width - thumb; // the slider's thumb stays inside its ends
  const mark = (numbers, colour, top, bottom, width) => {
    picture.fillStyle = getComputedStyle(document.querySelector(`.mark.${colour}`)).backgroundColor;
    let drawn = -1;
    for (const number of numbers) {
      const x = Math.round(thumb / 2 + (room * (number - FIRST)) / Math.max(1, COUNT - 1));
      if (x === drawn) continue;
      drawn = x;
      picture.fillRect(x - (width * scale) / 2, top * canvas.height, width * scale, (bottom - top) * canvas.height);
    }
  };
  if (chosen !== null) mark(chosen, "chosen", 0.7, 1, 1);
  mark(DATA.marks.epochs, "epoch", 0, 1, 2);
  mark(DATA.marks.early, "early", 0.35, 1, 1.5);
  mark(DATA.marks.errors, "bad", 0, 1, 2.5);
  mark(DATA.marks.departs, "departs", 0, 1, 3);
}

// ---- the link to an event

function link() {
  try { // a page in a notebook has no address of its own
    history.replaceState(null, "", `#k=${k}`);
  } catch {
    clearTimeout(go.link);
  }
}

const linked = () => {
  const found = /^#k=(\d+)$/.exec(location.hash);
  return found ? Number(found[1]) : DATA.at;
};

// ---- buttons

const clear = () => {
  $("who").value = $("batch").value = $("loader").value = "";
  choose();
};
const follow = (task) => {
  $("batch").value = $("batch").value === task ? "" : task;
  choose();
};
const goTo = () => {
  if (/^\s*\d+\s*$/.test($("number").value)) go(Number($("number").value));
  else $("number").value = k;
};

function connect() {
  const clicks = {
    first: () => end(false), back: () => step(-1), on: () => step(1), last: () => end(true),
    play: () => play(playing === null), clear, ask: () => $("help").showModal(),
    error: () => jump(DATA.marks.errors, 1), early: () => jump(DATA.marks.early, 1),
    theme: () => {
      const dark = getComputedStyle(document.documentElement).colorScheme === "dark" ||
        (document.documentElement.style.colorScheme === "" && matchMedia("(prefers-color-scheme: dark)").matches);
      document.documentElement.style.colorScheme = dark ? "light" : "dark";
      drawMarks();
    },
  };
  for (const [id, act] of Object.entries(clicks)) $(id).addEventListener("click", act);
  $("scrub").addEventListener("input", () => go(Number($("scrub").value)));
  $("number").addEventListener("change", goTo);
  for (const id of ["who", "loader"]) $(id).addEventListener("change", choose);
  $("batch").addEventListener("input", choose);
  $("around").addEventListener("click", (event) => {
    const row = event.target.closest("button");
    if (row) go(Number(row.dataset.k));
  });
  for (const id of ["board", "event"]) {
    $(id).addEventListener("click", (event) => {
      const clicked = event.target.closest("[data-task]");
      if (clicked) follow(clicked.dataset.task);
    });
  }
  addEventListener("hashchange", () => go(linked()));
  addEventListener("resize", drawMarks);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawMarks);
  addEventListener("keydown", pressed);
}

// ---- keys

const KEYS = {
  ArrowLeft: () => step(-1), ArrowRight: () => step(1), PageUp: () => step(-10), PageDown: () => step(10),
  Home: () => end(false), End: () => end(true), " ": () => play(playing === null),
  ArrowUp: () => faster(1), ArrowDown: () => faster(-1),
  e: () => jump(DATA.marks.errors, 1), E: () => jump(DATA.marks.errors, -1),
  o: () => jump(DATA.marks.early, 1), O: () => jump(DATA.marks.early, -1),
  g: () => $("number").select(), b: () => $("batch").select(), w: () => $("who").focus(),
  Escape: clear, "?": () => $("help").showModal(),
};

function faster(steps) {
  const at = RATES.indexOf($("speed").value) + steps;
  $("speed").value = RATES[Math.max(0, Math.min(RATES.length - 1, at))];
}

function pressed(event) {
  const act = KEYS[event.key], on = event.target;
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  if ($("help").open) {
    if (event.key === "?") $("help").close();
    return;
  }
  if (on.tagName === "SELECT" || (on.tagName === "INPUT" && on.type !== "range")) {
    // These use the keys themselves; Escape leaves them.
    if (event.key === "Escape") on.blur();
    return;
  }
  if (event.key === " " && on.tagName === "BUTTON") return; // space presses the button
  event.preventDefault();
  act();
}

// ---- begin

function begin() {
  document.head.append(Object.assign(element("style"), { id: "follow" }));
  document.querySelectorAll(".sample").forEach((each) => { [each.style.background, each.style.color] = DATA.colours[0]; });
  $("note").textContent = DATA.note;
  $("note").hidden = DATA.note === "";
  $("range").textContent = ` of ${FIRST} to ${FIRST + COUNT - 1}`;
  $("scrub").min = FIRST;
  $("scrub").max = FIRST + COUNT - 1;
  const who = [...new Set(EVENTS.actor.map((actor) => DATA.names[actor]))].sort();
  $("who").append(new Option("all threads", ""), ...who.map((name) => new Option(name)));
  const loaders = [...new Set(EVENTS.iterator)].sort((one, other) => one - other);
  const entries = loaders.map((number) => new Option(DATA.iterators[number].name, number));
  $("loader").append(new Option("all loaders", ""), ...entries);
  $("loader").hidden = loaders.length < 2;
  for (const [id, name] of [["error", "errors"], ["early", "early"]]) {
    const button = $(id), count = DATA.marks[name].length;
    button.querySelector("b").textContent = count;
    button.disabled = count === 0;
  }
  connect();
  k = Math.max(FIRST, Math.min(FIRST + COUNT - 1, linked()));
  choose();
}

begin();
