/** Elements and texts. Data only becomes text nodes and attributes: nothing that is shown is ever parsed as HTML. */

export const byId = (id) => document.getElementById(id);

/** Makes an element; attributes `on…` are listeners, true and false set and omit, null and undefined omit. */
export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (typeof value === "boolean") node.toggleAttribute(key, value);
    else if (value != null) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

export const button = (label, onclick) => el("button", { type: "button", onclick }, label);

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export const pretty = (value) => JSON.stringify(value, null, 2);

/** JSON or a long text that scrolls, by keyboard too. */
export const block = (text, label) => el("pre", { tabindex: 0, role: "group", "aria-label": label, dir: "auto" }, text);

export const paragraph = (text, kind = "text") => el("p", { class: kind, dir: "auto" }, text);

/** Today's times as 14:05, others as 21 Nov, 14:05. */
export function when(time) {
  const date = new Date(time);
  const day = date.toDateString() === new Date().toDateString() ? {} : { day: "numeric", month: "short" };
  return date.toLocaleString([], { ...day, hour: "2-digit", minute: "2-digit" });
}

export const thinking = (text) => el("details", { class: "thinking" }, el("summary", {}, "Thinking"), paragraph(text));

/** The parts of a message, reply or result. */
export const parts = (content) => content.map(part);

function part(given) {
  if (given.type === "text") return paragraph(given.text ?? "");
  if (given.type === "thinking") return thinking(given.text ?? "");
  const url = String(given.image_url?.url);
  if (url.startsWith("data:image/")) return el("img", { src: url, alt: "An image" });
  if (/^https?:/i.test(url)) return el("a", { href: url, target: "_blank", rel: "noreferrer" }, url);
  return block(pretty(given), `Content of the type ${given.type}`);
}
