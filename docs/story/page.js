// Gives each scene a step-through of its own, in a frame: the page of one is the template with the scene's data in it.
"use strict";

const [MARK, TEMPLATE] = JSON.parse(document.getElementById("template").textContent);

// Written, not loaded: printing does not wait for a frame.
function begin(figure) {
  if (figure.querySelector("iframe")) return;
  const frame = document.createElement("iframe");
  frame.title = `step-through: ${figure.closest("main").querySelector("h1").textContent}, ${figure.dataset.scene}`;
  figure.append(frame);
  const inner = frame.contentDocument;
  inner.open();
  inner.write(TEMPLATE.split(MARK).join(figure.querySelector("script").textContent));
  inner.close();
  const fit = () => { frame.style.height = `${inner.body.scrollHeight + 2}px`; };
  new ResizeObserver(fit).observe(inner.body);
  fit();
}

// Not before it is nearly in sight: twelve at once would take a second.
const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    begin(target);
  }
}, { rootMargin: "600px" });

const figures = document.querySelectorAll("figure[data-scene]");
figures.forEach((figure) => seen.observe(figure));
addEventListener("beforeprint", () => figures.forEach(begin));
