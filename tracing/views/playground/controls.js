// The sliders, play, keys, and the link to a setting: #workers=2&in_order=0 names what differs from the defaults.
"use strict";

// A slider is [name, label, least, most, step, unit], a box [name, label], a choice [name, label, {value: words}].
const CONTROLS = {
  loader: [
    ["workers", "num_workers", 0, 16, 1, ""], ["prefetch", "prefetch_factor", 1, 8, 1, ""], ["in_order", "in_order"],
    ["pin", "pin_memory"], ["batch", "batch_size", 1, 16, 1, ""],
  ],
  samples: [
    ["shape", "their times are", {
      constant: "constant", varied: "varied: 0 to 3 times as long", slow_sample: "one in n is slow",
      slow_worker: "one worker is slow",
    }],
    ["sample", "a sample takes", 0, 50, 0.5, " ms"], ["every", "one in", 2, 200, 1, ""],
    ["factor", "the slow take", 2, 50, 1, " times as long"],
  ],
  batches: [
    ["collate", "to collate one", 0, 20, 0.5, " ms"], ["move", "to pack it; to unpack it", 0, 20, 0.5, " ms"],
    ["pinning", "to pin it", 0, 20, 0.5, " ms"], ["train", "a training step", 0, 60, 0.5, " ms"],
  ],
};
const ALL = Object.values(CONTROLS).flat();
const still = matchMedia("(prefers-reduced-motion: reduce)");
const paint = new Paint($("picture").getContext("2d"));
const timeline = new Timeline(paint), board = new Board(paint);
let setting = { ...DEFAULTS }, run = makeRun(setting);
let now = 0; // the moment that is shown, in ticks
let playing = false, drawnAt = 0, asked = 0; // ms; a frame that is asked for

// ---- the picture

// `passed`: ms since the picture before. Returns whether anything still moves.
function draw(passed) {
  const canvas = $("picture"), scale = devicePixelRatio || 1, width = canvas.clientWidth, narrow = width < 700;
  const { rows, bottom } = rowsOf(run, narrow), full = bottom + STRIP + AXIS;
  const height = narrow ? full + bottom + 14 : full;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
  }
  const { context } = paint, half = narrow ? width : Math.round(width * 0.6);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  timeline.draw(run, now, { left: 0, width: half, rows, bottom });
  context.save();
  const area = narrow ? { left: 0, width } : { left: half + 8, width: width - half - 8 };
  if (narrow) context.translate(0, full + 10);
  const moves = board.draw(run, now, { ...area, rows, labelled: narrow }, still.matches ? Infinity : passed);
  context.restore();
  return moves;
}

function frame(time) {
  const passed = Math.min(50, time - drawnAt); // at most that: after a rest, or in a tab that nobody saw
  asked = 0;
  drawnAt = time;
  if (playing) {
    now = Math.min(run.end, now + ((passed / 1000) * Number($("speed").value) * run.end) / run.setting.batches);
    $("scrub").value = now;
  }
  if (playing && now >= run.end) play(false);
  const moves = draw(passed);
  words();
  if (playing || moves) again();
}

const again = () => { asked ||= requestAnimationFrame(frame); };

// The numbers and words of this moment. While it plays they are not read out, and not written with every frame.
function words() {
  const [, held, early] = depthAt(run, now), told = `${now} ${run.end}`;
  if (words.told === told || (playing && performance.now() - (words.at ?? 0) < 150)) return;
  Object.assign(words, { told, at: performance.now() });
  $("held").innerHTML = `${held}<small>${early ? `${early} early, ` : ""}at most ${run.peak}</small>`;
  $("sentence").textContent = sentenceOf(run, now);
  $("scrub").setAttribute("aria-valuetext", `${(now / TICKS).toFixed(1)} ms`);
}

// ---- time

function go(time) {
  now = Math.max(0, Math.min(run.end, time));
  $("scrub").value = now;
  again();
}

function play(on) {
  playing = on;
  if (on && now >= run.end) now = 0;
  document.body.classList.toggle("playing", on);
  $("play").setAttribute("aria-label", on ? "Pause" : "Play");
  $("sentence").setAttribute("aria-live", on ? "off" : "polite");
  words.told = "";
  again();
}

// To the next or previous moment at which something happens.
function step(by) {
  play(false);
  const after = countUpTo(run.times, now), on = run.times[after - 1] === now;
  go(run.times[by > 0 ? after : after - (on ? 2 : 1)] ?? now);
}

function faster(by) {
  const speed = $("speed");
  speed.selectedIndex = Math.max(0, Math.min(speed.options.length - 1, speed.selectedIndex + by));
}

// ---- the setting

// Show this setting; whatever it does not say is as in the defaults.
function set(changed, keepsTime = true) {
  const before = run;
  setting = sane({ ...DEFAULTS, ...changed });
  run = makeRun(setting);
  for (const [name, label, , , , unit] of ALL) {
    const input = $(name), value = setting[name];
    if (typeof value === "boolean") input.checked = value;
    else input.value = value;
    if (unit === undefined) continue;
    input.nextElementSibling.textContent = `${value}${unit}`;
    input.setAttribute("aria-valuetext", `${value}${unit}`);
  }
  const unused = {
    prefetch: !setting.workers, in_order: !setting.workers, move: !setting.workers, pinning: !setting.pin,
    every: setting.shape !== "slow_sample", factor: !setting.shape.startsWith("slow"),
  };
  for (const [name, off] of Object.entries(unused)) $(name).disabled = off;
  $("scrub").max = run.end;
  if (!keepsTime) board.shown.clear();
  address();
  stories();
  numbers(keepsTime ? before : null);
  words.told = "";
  go(keepsTime ? now : 0);
}

// Within the sliders' bounds, and of the right kinds: a link can say anything.
function sane(given) {
  const kept = { ...DEFAULTS };
  for (const [name, , low, high, size] of ALL) {
    const value = given[name];
    if (typeof kept[name] === "boolean") kept[name] = value === true || value === "1";
    else if (typeof low === "object") kept[name] = Object.hasOwn(low, value) ? value : kept[name];
    else if (value !== "" && Number.isFinite(Number(value))) {
      kept[name] = Math.min(high, Math.max(low, Math.round(value / size) * size));
    }
  }
  return kept;
}

function address() {
  const differs = ALL.map(([name]) => name).filter((name) => setting[name] !== DEFAULTS[name]);
  const written = (value) => (typeof value === "boolean" ? Number(value) : value);
  const link = `#${differs.map((name) => `${name}=${written(setting[name])}`).join("&")}`;
  $("link").href = link;
  try {
    history.replaceState(null, "", link);
  } catch {
    // a page in a frame without an address
  }
}

const linked = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

// `before`: the run that was shown, null if comparing makes no sense.
function numbers(before) {
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const rate = run.rate.toFixed(1), was = before?.rate.toFixed(1) ?? rate;
  $("rate").innerHTML = `${rate}${was === rate ? "" : `<small>before: ${was}</small>`}`;
  $("lost").textContent = setting.workers ? "main waits" : "main loads";
  $("waits").textContent = percent(run.waits);
  const [trains, unpacks] = $("share").children;
  trains.style.width = percent(run.trains).replace(" ", "");
  unpacks.style.width = percent(run.unpacks).replace(" ", "");
  const moving = run.unpacks >= 0.005 ? `, unpacks for ${percent(run.unpacks)}` : "";
  const rest = `and ${setting.workers ? "waits" : "makes batches"} for ${percent(run.waits)}.`;
  const workers = setting.workers ? ` A worker is busy for ${percent(run.busy)} on average.` : "";
  const most = `At most ${run.peak} batch${run.peak === 1 ? " is" : "es are"} in memory.`;
  $("summary").textContent = `${rate} batches a second: ${run.limit}. ` +
    `Main trains for ${percent(run.trains)} of the time${moving}, ${rest}${workers} ${most}`;
}

// ---- stories

let story = null; // the one that was chosen last

function stories() {
  for (const each of $("choices").children) each.setAttribute("aria-pressed", String(each.dataset.id === story?.id));
  $("story").textContent = story?.text ?? "Choose a story, or move the sliders: what does it take to keep main training?";
  $("tries").replaceChildren(...(story ? ["Try:"] : []));
  for (const { name, change } of story?.tries ?? []) {
    const on = Object.entries(change).every(([key, value]) => setting[key] === value);
    $("tries").append(button(name, () => set({ ...story.setting, ...(on ? {} : change) }), on));
  }
}

function button(name, act, pressed) {
  const made = Object.assign(document.createElement("button"), { type: "button", textContent: name, onclick: () => {
    const at = [...made.parentElement?.children ?? []].indexOf(made), where = made.parentElement;
    act();
    where?.children[at]?.focus(); // the buttons may be new
  } });
  made.setAttribute("aria-pressed", String(pressed));
  return made;
}

function tell(id) {
  story = STORIES.find((each) => each.id === id) ?? null;
  set(story?.setting ?? {}, false);
  if (!still.matches) play(true);
}

// ---- what is there from the beginning

function build() {
  for (const [title, rows] of Object.entries(CONTROLS)) {
    const group = document.createElement("fieldset");
    group.append(Object.assign(document.createElement("legend"), { textContent: title }), ...rows.map(control));
    $("controls").append(group);
  }
  for (const { id, name } of STORIES) {
    const made = button(name, () => tell(id), false);
    made.dataset.id = id;
    $("choices").append(made);
  }
}

function control([name, label, low, high, size]) {
  const row = Object.assign(document.createElement("div"), { className: "control" });
  const input = document.createElement(typeof low === "object" ? "select" : "input");
  input.id = name;
  if (typeof low === "object") input.append(...Object.entries(low).map(([value, text]) => new Option(text, value)));
  else if (low === undefined) input.type = "checkbox";
  else Object.assign(input, { type: "range", min: low, max: high, step: size });
  const read = () => set({ ...setting, [name]: input.type === "checkbox" ? input.checked : input.value });
  input.addEventListener("input", read);
  const words = Object.assign(document.createElement("label"), { htmlFor: name, textContent: label });
  row.append(words, input);
  if (input.type === "range") row.append(document.createElement("output"));
  return row;
}

const KEYS = {
  " ": () => play(!playing), ArrowLeft: () => step(-1), ArrowRight: () => step(1),
  Home: () => go(0), End: () => go(run.end), ArrowUp: () => faster(1), ArrowDown: () => faster(-1),
  "?": () => ($("help").open ? $("help").close() : $("help").showModal()),
};

function pressed(event) {
  const { target, key } = event, modified = event.ctrlKey || event.metaKey || event.altKey;
  const takes = key === " " ? "select, input, button, a" : "select, input[type=range]"; // what uses this key itself
  if (modified || !KEYS[key] || (key !== "?" && (target.closest?.(takes) || $("help").open))) return;
  event.preventDefault();
  KEYS[key]();
}

function connect() {
  const clicks = {
    first: () => go(0), back: () => step(-1), play: () => play(!playing), on: () => step(1),
    ask: () => $("help").showModal(),
    theme: () => {
      const root = document.documentElement, scheme = root.style.colorScheme;
      const dark = scheme ? scheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.style.colorScheme = dark ? "light" : "dark";
      repaint();
    },
  };
  for (const [id, act] of Object.entries(clicks)) $(id).addEventListener("click", act);
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("scrub").addEventListener("input", () => { play(false); go(Number($("scrub").value)); });
  addEventListener("keydown", pressed);
  addEventListener("hashchange", () => { story = null; set(linked(), false); });
  new ResizeObserver(() => again()).observe($("picture"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
}

function repaint() {
  paint.refresh();
  again();
}

build();
connect();
story = location.hash.length > 1 ? null : STORIES.find(({ id }) => id === "slow-sample");
set(story ? story.setting : linked(), false);
if (still.matches) go(run.end / 4);
else play(true);
