// Draws the queues at a moment: each batch is a box with its number, which glides from place to place.
"use strict";

const CHIP = 26; // px wide
const LEAST = 16; // px from one to the next in a queue that is full: what has no room is counted
const HALF_LIFE = 45; // ms in which a box covers half its path

class Board {
  constructor(paint) {
    this.paint = paint;
    this.shown = new Map(); // task -> {x, y}
  }

  // `area`: {left, width, rows, labelled}; `passed`: ms since it was last drawn, Infinity to put everything in its
  // place. Returns whether anything still moves.
  draw(run, now, area, passed) {
    this.frame(run, area);
    const groups = new Map();
    for (const history of run.histories) {
      const place = placeOf(history, now);
      if (!place) continue;
      const [name, worker] = place, key = `${name} ${worker}`;
      if (!groups.has(key)) groups.set(key, { name, worker, tasks: [] });
      groups.get(key).tasks.push(history);
    }
    const targets = new Map();
    this.counts = []; // [words, x, y, height]
    for (const { name, worker, tasks } of groups.values()) this.line(targets, name, worker, tasks);
    const moves = this.glide(targets, passed);
    for (const [words, x, y, height] of this.counts) {
      this.paint.context.fillStyle = this.paint.ground;
      this.paint.context.fillRect(x - 2, y, CHIP + 2, height);
      this.paint.text(words, x + CHIP / 2 - 1, y + height / 2 + 1, this.paint.ink, 11, "center");
    }
    return moves;
  }

  // The boxes of the queues, and their names.
  frame(run, area) {
    const { context } = this.paint, label = area.labelled ? LABEL : 0;
    const left = area.left + label, width = area.width - label;
    const [one, other] = [left + width * 0.41, left + width * 0.59];
    const workers = run.setting.workers, first = run.lanes.length - workers, data = run.setting.pin && workers > 0;
    this.boxes = {};
    const box = (key, from, until, [top, bottom]) => {
      this.boxes[key] = { from, until, top, bottom };
      context.strokeStyle = this.paint.line;
      context.strokeRect(from + 0.5, top + 0.5, until - from - 1, bottom - top - 1);
    };
    const title = (words, from, until, top) => {
      this.paint.text(words, (from + until) / 2, top - 8, this.paint.faint, 11, "center");
    };
    run.lanes.forEach((lane, at) => {
      const row = area.rows[at];
      if (area.labelled) this.paint.text(lane.name, area.left, (row[0] + row[1]) / 2, this.paint.ink, 12);
      if (lane.worker === undefined) box(at ? "pin 0" : "main 0", one + 4, other - 4, row);
      else box(`worker ${lane.worker}`, one + 4, other - 4, row);
    });
    title("main", one, other, area.rows[0][0]);
    if (!workers) return;
    box("reorder 0", left, one - 4, area.rows[0]);
    title("reorder buffer", left, one, area.rows[0][0]);
    if (data) {
      box("data 0", other + 4, left + width, area.rows[0]);
      title("data_queue", other, left + width, area.rows[0][0]);
      this.paint.text("pin thread", other + 6, (area.rows[1][0] + area.rows[1][1]) / 2, this.paint.faint, 11);
    }
    for (let worker = 0; worker < workers; worker++) {
      box(`index ${worker}`, left, one - 4, area.rows[first + worker]);
      box(`result ${worker}`, other + 4, left + width, area.rows[first + worker]);
    }
    title("index_queue", left, one, area.rows[first][0]);
    title("worker", one, other, area.rows[first][0]);
    title(width > 300 ? "worker_result_queue" : "result queue", other, left + width, area.rows[first][0]);
  }

  // In a queue the next to be taken is nearest to its receiver: on the right, in data_queue on the left.
  line(targets, name, worker, tasks) {
    const box = this.boxes[`${name} ${worker}`];
    if (!box) return;
    const since = { index: "put", result: "sent", data: "putData", reorder: "task" }[name] ?? "task";
    tasks.sort((one, other) => one[since] - other[since] || one.task - other.task);
    const whole = box.until - box.from - 6 - CHIP, full = tasks.length > 1 + whole / LEAST;
    const room = full ? whole - CHIP - 4 : whole, most = full ? 1 + Math.floor(room / LEAST) : tasks.length;
    const gap = Math.min(CHIP + 3, room / Math.max(1, most - 1));
    const height = Math.min(22, box.bottom - box.top - 2), y = (box.top + box.bottom - height) / 2;
    const single = name === "worker" || name === "main" || name === "pin";
    const end = name === "data" ? box.until - 3 - CHIP : box.from + 3;
    if (full) this.counts.push([`+${tasks.length - most}`, end, y, height]);
    tasks.forEach((history, at) => {
      let x = box.until - 3 - CHIP - at * gap;
      if (name === "data") x = box.from + 3 + at * gap;
      if (single) x = (box.from + box.until - CHIP) / 2 + (at - (tasks.length - 1) / 2) * Math.min(gap, CHIP);
      if (at >= most) x = end; // under their count
      targets.set(history.task, { x, y, height, waiting: name === "index", order: -at });
    });
  }

  glide(targets, passed) {
    let moves = false;
    const kept = Math.pow(0.5, passed / HALF_LIFE);
    for (const task of [...this.shown.keys()]) if (!targets.has(task)) this.shown.delete(task);
    const order = [...targets].sort((one, other) => one[1].order - other[1].order); // the next to be taken lies on top
    for (const [task, { x, y, height, waiting }] of order) {
      const at = this.shown.get(task) ?? { x, y };
      at.x = x + (at.x - x) * kept;
      at.y = y + (at.y - y) * kept;
      if (Math.abs(at.x - x) + Math.abs(at.y - y) > 0.5) moves = true;
      else Object.assign(at, { x, y });
      this.shown.set(task, at);
      this.chip(task, at.x, at.y, height, waiting);
    }
    return moves;
  }

  // A task that no worker has begun is an outline on its colour; a batch is filled.
  chip(task, x, y, height, waiting) {
    const { context } = this.paint, [colour, ink] = colourOf(task);
    context.beginPath();
    context.roundRect(x + 0.5, y + 0.5, CHIP - 1, height - 1, 4);
    context.fillStyle = waiting ? this.paint.ground : colour;
    context.fill();
    if (waiting) {
      context.fillStyle = colour;
      context.fillRect(x + 3, y + height - 4, CHIP - 6, 3);
    }
    context.strokeStyle = waiting ? this.paint.faint : this.paint.ground;
    context.stroke();
    const middle = y + height / 2 + (waiting ? -1 : 1);
    this.paint.text(`${task}`, x + CHIP / 2, middle, waiting ? this.paint.ink : ink, 11, "center", "600");
  }
}
