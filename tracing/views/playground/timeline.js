// Draws the lanes of a run up to a moment: what each thread did, in the batches' colours; below them, how many batches
// were in memory. What is yet to come is pale.
"use strict";

const $ = (id) => document.getElementById(id);
const DATA = JSON.parse($("data").textContent);
const LABEL = 70; // px for the names of the lanes
const [HEAD, GAP, STRIP, AXIS] = [18, 20, 54, 18]; // px: above main, above the workers; the memory; the ms

const colourOf = (task) => DATA.colours[task % DATA.colours.length];

// Colours and patterns for the canvas, which has no var(): made again when light and dark change.
class Paint {
  constructor(context) {
    this.context = context;
    this.refresh();
  }

  refresh() {
    const probe = $("probe");
    for (const name of ["ground", "card", "line", "ink", "faint", "wait", "acts", "edge"]) {
      probe.style.color = `var(--${name})`;
      this[name] = getComputedStyle(probe).color;
    }
    this.patterns = new Map();
  }

  // Work has a batch's colour: plain, hatched or dotted, so that it can be told apart in grey.
  fill(look, task) {
    const [colour, ink] = colourOf(task);
    if (look !== "collate" && look !== "pack" && look !== "unpack") return colour;
    const key = `${look === "collate"} ${colour}`;
    if (!this.patterns.has(key)) this.patterns.set(key, this.pattern(look === "collate", colour, ink));
    return this.patterns.get(key);
  }

  pattern(hatched, colour, ink) {
    const tile = Object.assign(document.createElement("canvas"), { width: 6, height: 6 });
    const brush = tile.getContext("2d");
    brush.fillStyle = colour;
    brush.fillRect(0, 0, 6, 6);
    brush.strokeStyle = brush.fillStyle = ink;
    brush.globalAlpha = 0.75;
    if (hatched) {
      for (const shift of [-6, 0, 6]) {
        brush.beginPath();
        brush.moveTo(shift - 1, 7);
        brush.lineTo(shift + 7, -1);
        brush.stroke();
      }
    } else {
      brush.fillRect(1, 1, 2, 2);
      brush.fillRect(4, 4, 2, 2);
    }
    return this.context.createPattern(tile, "repeat");
  }

  text(words, x, y, colour, size = 11, align = "left", weight = "") {
    this.context.font = `${weight} ${size}px system-ui, "Segoe UI", "DejaVu Sans", sans-serif`;
    this.context.textAlign = align;
    this.context.textBaseline = "middle";
    this.context.fillStyle = colour;
    this.context.fillText(words, x, y);
  }
}

// Where each lane is: [top, bottom] in px.
function rowsOf(run, narrow) {
  const workers = run.setting.workers, rows = [];
  const [few, some, many] = narrow ? [28, 22, 17] : [36, 28, 21];
  const height = workers <= 4 ? few : workers <= 8 ? some : many;
  let top = HEAD;
  for (const lane of run.lanes) {
    if (lane.worker === 0) top += GAP;
    const tall = lane.worker === undefined ? Math.max(26, height) : height;
    rows.push([top, top + tall - 3]);
    top += tall;
  }
  return { rows, bottom: top };
}

class Timeline {
  constructor(paint) {
    this.paint = paint;
  }

  // `area`: {left, width, rows, bottom}
  draw(run, now, area) {
    this.left = area.left + LABEL;
    this.right = area.left + area.width - 6;
    const span = (run.end / run.setting.batches) * Math.max(4, (this.right - this.left) / 46); // 46 px for a batch
    this.begin = Math.max(0, Math.min(now - span * 0.8, run.end - span));
    this.scale = (this.right - this.left) / span;
    this.now = now;
    const { context } = this.paint;
    run.lanes.forEach((lane, at) => {
      const [top, bottom] = area.rows[at];
      this.paint.text(lane.name, area.left, (top + bottom) / 2, this.paint.ink, 12);
      context.fillStyle = this.paint.card;
      context.fillRect(this.left, top, this.right - this.left, bottom - top);
    });
    context.save();
    context.beginPath();
    context.rect(this.left, 0, this.right - this.left, area.bottom + STRIP + AXIS);
    context.clip();
    run.lanes.forEach((lane, at) => {
      for (const bar of lane.bars) this.bar(bar, ...area.rows[at]);
    });
    this.memory(run, area.bottom + 8, area.bottom + STRIP - 6);
    this.axis(area.bottom + STRIP + 4);
    context.fillStyle = this.paint.acts;
    context.fillRect(this.x(now) - 1, HEAD - 8, 2, area.bottom + STRIP - HEAD + 4);
    context.restore();
    this.paint.text("in memory", area.left, area.bottom + STRIP / 2 - 6, this.paint.ink, 12);
    this.paint.text(`at most ${run.peak}`, area.left, area.bottom + STRIP / 2 + 8, this.paint.faint, 11);
  }

  x(time) {
    return this.left + (time - this.begin) * this.scale;
  }

  bar({ look, task, begin, end }, top, bottom) {
    const from = Math.max(this.left - 9, this.x(begin)), until = Math.min(this.right + 9, this.x(end));
    if (until < this.left || from > this.right) return;
    const now = this.x(this.now);
    if (from < now) this.block(look, task, from, Math.min(until, now), top, bottom);
    if (until > now) {
      this.paint.context.globalAlpha = 0.22;
      this.block(look, task, Math.max(from, now), until, top, bottom);
      this.paint.context.globalAlpha = 1;
    }
    const [, ink] = colourOf(task), since = Math.max(from, this.left), seen = Math.min(until, now, this.right) - since;
    const middle = since + seen / 2;
    if (look === "wait" && seen > 60) {
      this.paint.text(`waits ${task}`, middle, (top + bottom) / 2 + 1, this.paint.wait, 11, "center");
    } else if (["fetch", "pin", "train"].includes(look) && seen > 4 + 7 * `${task}`.length) {
      this.paint.text(`${task}`, middle, (top + bottom) / 2 + 1, ink, 11, "center", "600");
    }
  }

  block(look, task, from, until, top, bottom) {
    const { context } = this.paint;
    if (look === "wait") {
      context.strokeStyle = this.paint.wait;
      context.setLineDash([3, 3]);
      context.strokeRect(from + 0.5, top + 2.5, Math.max(0, until - from - 1), bottom - top - 5);
      context.setLineDash([]);
      return;
    }
    context.fillStyle = this.paint.fill(look, task);
    const width = Math.max(0.6, until - from - (until - from > 4 ? 1 : 0));
    context.fillRect(from, top, width, bottom - top);
    if (width > 4) { // a dark bar on a dark page has an edge
      context.strokeStyle = this.paint.edge;
      context.strokeRect(from + 0.5, top + 0.5, width - 1, bottom - top - 1);
    }
    if (look !== "train") return;
    context.fillStyle = this.paint.ink; // without workers main's lane has samples, too
    context.fillRect(from, top, width, 3);
    context.fillRect(from, bottom - 3, width, 3);
  }

  // A stepped curve of the batches in memory; those in the reorder buffer have a darker ground.
  memory(run, top, bottom) {
    const { context } = this.paint, last = run.depths.length;
    const height = (count) => ((bottom - top) * count) / Math.max(1, run.peak);
    const first = Math.max(0, countUpTo(run.depths, this.begin, (depth) => depth[0]) - 1);
    for (let at = first; at < last; at++) {
      const [since, held, early] = run.depths[at], from = Math.round(this.x(since)); // whole px, or seams would show
      const until = Math.round(Math.min(this.x(run.depths[at + 1]?.[0] ?? run.end), this.x(this.now)));
      if (since > this.now || from > this.right) break;
      context.fillStyle = this.paint.line;
      context.fillRect(from, bottom - height(held), until - from, height(held));
      context.fillStyle = this.paint.wait;
      context.fillRect(from, bottom - height(early), until - from, height(early));
    }
    context.fillStyle = this.paint.faint;
    context.fillRect(this.left, bottom, this.right - this.left, 1);
  }

  axis(y) {
    const span = (this.right - this.left) / this.scale / TICKS, raw = span / Math.max(3, (this.right - this.left) / 60);
    const power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find((each) => each * power >= raw) * power;
    for (let ms = Math.ceil(this.begin / TICKS / step) * step; ms < this.begin / TICKS + span; ms += step) {
      const x = this.x(ms * TICKS), words = `${Number(ms.toFixed(3))} ms`;
      if (ms && x < this.left + 26) continue;
      const last = x > this.right - 26; // shown whole too
      this.paint.text(words, last ? this.right : x, y, this.paint.faint, 11, last ? "right" : ms ? "center" : "left");
    }
  }
}
