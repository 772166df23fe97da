// What a reader sees of the state: taken from the page's elements, never from its variables.
(() => {
  const text = (root, css) => root.querySelector(css)?.textContent ?? null;
  const chips = (root) => [...root.querySelectorAll(".chip")].map((chip) => chip.textContent);
  const doing = (root) => [".status", ".since", ".task"].map((css) => text(root, css));
  const queue = (root) => [chips(root.querySelector(".buffer")), chips(root.querySelector(".pipe")), root.querySelector(".pickling") !== null];
  const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const set = (id, value, event) => {
    const input = document.getElementById(id);
    input.value = value;
    input.dispatchEvent(new Event(event, { bubbles: true }));
  };

  function read() {
    const board = document.getElementById("board"), main = board.querySelector(".main");
    const words = text(document, "#about summary").split(" · ");
    const about = words.filter((each) => /^(loader|epoch) \d+$|^shut down$/.test(each));
    const state = { k: Number(document.getElementById("number").value), about };
    if (!main) return { ...state, missing: board.textContent };
    const lanes = [...board.querySelectorAll(".lane:not(.heads, .back)")];
    const back = (name) => board.querySelector(`.back .${name}`);
    return {
      ...state,
      main: [...doing(main), ...[".thread", ".shutdown", ".error"].map((css) => text(main, css))],
      counts: [...main.querySelectorAll("dd")].map((each) => Number(each.textContent)),
      index: lanes.map((lane) => queue(lane.children[0])),
      workers: lanes.map((lane) => [text(lane, ".id"), ...doing(lane), [...lane.querySelectorAll(".process span")].map((each) => each.textContent)]),
      slots: lanes.map((lane) => [...lane.querySelectorAll(".slots i")].map((each) => [each.title, each.textContent])),
      results: lanes.map((lane) => queue(lane.children[2])),
      pin: back("pin") && doing(back("pin")),
      data: back("data") && chips(back("data")),
      reorder: back("reorder") && [chips(back("reorder")), text(back("reorder"), ".gap")],
      tasks: [...board.querySelectorAll(".info .entry")].map((each) => each.textContent),
    };
  }

  // What is shown after each of these moves: "ArrowRight" is a key, 12 an event to go to.
  const walk = (moves) => moves.map((move) => {
    if (typeof move === "number") set("number", move, "change");
    else press(move);
    return read();
  });
  window.reading = { read, walk, press, set };
})();
