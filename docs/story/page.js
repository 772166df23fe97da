// Gives each scene a step-through of its own, in a frame: the page of one is the template with the scene's data in it.
"use strict";

const [MARK, TEMPLATE] = JSON.parse(document.getElementById("template").textContent);

function begin(figure) {
  const frame = document.createElement("iframe");
  frame.title = `step-through: ${figure.closest("main").querySelector("h1").textContent}, ${figure.dataset.scene}`;
  frame.srcdoc = TEMPLATE.split(MARK).join(figure.querySelector("script").textContent);
  frame.addEventListener("load", () => {
    const inner = frame.contentDocument.body;
    const fit = () => { frame.style.height = `${inner.scrollHeight + 2}px`; };
    new ResizeObserver(fit).observe(inner);
    fit();
  });
  figure.append(frame);
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
addEventListener("beforeprint", () => figures.forEach((figure) => figure.querySelector("iframe") || begin(figure)));
