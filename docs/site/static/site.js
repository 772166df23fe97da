"use strict";

// A mermaid sequence diagram -> a grid: threads are columns, each message or note is a row.
function drawn(text) {
  const [, title] = text.match(/title (.*)/);
  const columns = [...text.matchAll(/participant (\w+) as (.*)/g)].map(([, id, name]) => ({ id, name }));
  const at = (id) => columns.findIndex((each) => each.id === id) + 1;
  const figure = document.createElement("figure");
  figure.className = "sequence";
  figure.append(made("figcaption", title));
  const list = made("ol");
  list.style.setProperty("--columns", columns.length);
  for (const { id, name } of columns) list.append(row("thread", name, at(id), at(id)));
  for (const [, from, to, message, of, note] of text.matchAll(/(P\d+)->>(P\d+): (.*)|note over (P\d+): (.*)/g)) {
    if (note) list.append(row("note", note, at(of), at(of)));
    else list.append(row(at(from) < at(to) ? "right" : "left", message, at(from), at(to)));
  }
  figure.append(list);
  return figure;
}

function row(kind, text, from, to) {
  const item = made("li", text);
  const [first, last] = [Math.min(from, to), Math.max(from, to)];
  item.className = kind;
  item.style.gridColumn = `${first} / ${last + 1}`;
  item.style.setProperty("--span", last - first + 1);
  return item;
}

function made(tag, text = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}

for (const block of document.querySelectorAll(".highlight-mermaid")) block.replaceWith(drawn(block.textContent));

// What is wider than the page scrolls by itself: by keyboard, too.
const watcher = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
document.querySelectorAll("pre, .table-wrapper, .sequence").forEach((each) => watcher.observe(each));

// A long signature is a list of definitions without terms: for the eye only.
document.querySelectorAll("dt dl, dt dd").forEach((each) => each.setAttribute("role", "presentation"));
