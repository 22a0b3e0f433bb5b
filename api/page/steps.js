/** A conversation event by event: what each changed, what was then owed, and why it came. */

import { command, explain, query } from "./api.js";
import { block, button, byId, el, paragraph, pretty, when } from "./dom.js";

const SIGNS = { add: "+", remove: "-", replace: "~", move: ">" };
let open = { path: null, next: null };

/** Show the first events of a conversation. */
export function showSteps(id) {
  open = { path: `v1/conversations/${id}`, next: 0 };
  byId("steps").replaceChildren();
  more();
}

async function more() {
  const mine = open;
  byId("more-steps").hidden = true;
  byId("steps-problem").textContent = "";
  try {
    const page = await query(`${mine.path}/steps`, { after: mine.next });
    if (mine !== open) return; // another conversation was opened meanwhile
    byId("steps").append(...page.items.map((item) => step(mine.path, item)));
    mine.next = page.next_cursor;
    byId("more-steps").hidden = mine.next === null;
  } catch (error) {
    if (mine === open) byId("steps-problem").textContent = explain(error);
  }
}

byId("more-steps").addEventListener("click", more);

function step(path, { seq, type, occurred_at, data, text, patch, owes, amid }) {
  const glance = el("span", { class: "glance", dir: "auto" }, text);
  const summary = el("summary", {}, el("b", {}, `${seq} ${type}`), glance, el("span", { class: "chip" }, when(occurred_at)));
  const found = el("div", { class: "result", role: "status", hidden: true });
  const show = (look) => async () => {
    found.hidden = false;
    try {
      found.replaceChildren(...(await look()));
    } catch (error) {
      found.replaceChildren(paragraph(explain(error), "problem"));
    }
  };
  const buttons = el(
    "p",
    { class: "buttons" },
    button("Why?", show(async () => trace(await query(`${path}/trace/${seq}`, {})))),
    button("What the model would see", show(async () => context(await query(`${path}/state`, { at: seq })))),
    button("What if not?", show(async () => otherwise(await command(`${path}/what-if`, { drop: [seq] })))),
  );
  const body = el(
    "div",
    {},
    paragraph(amid ? "The next event was appended with this one." : `Owed then: ${owed(owes)}`),
    block(pretty(data), "What it says"),
    block(patch.map(line).join("\n"), "What it changed"),
    buttons,
    found,
  );
  return el("details", { class: "call", "aria-label": `Event ${seq} ${type}` }, summary, body);
}

const line = ({ op, path, from, value }) =>
  `${SIGNS[op] ?? op} ${from ? `${from} → ` : ""}${path} ${value === undefined ? "" : JSON.stringify(value)}`;

const owed = (owes) =>
  owes.map(({ kind, ...more }) => [kind, ...Object.values(more).flat().filter(Boolean)].join(" ")).join("; ") || "nothing";

/** The tree of what led to an event and what came of it; stars mark the slowest path. */
function trace({ events, times, total_ms }) {
  const depths = new Map([[null, -1]]);
  const lines = events.map(({ seq, parent, type, text, waits, slowest, role }) => {
    depths.set(seq, depths.get(parent) + 1);
    const waited = Object.entries(waits).map(ms).join(", ");
    const marks = [slowest ? "*" : " ", "  ".repeat(depths.get(seq)), seq, type, waited && `(${waited})`, text];
    return `${marks.filter((mark) => mark !== "").join(" ")}${role === "event" ? "  ← this event" : ""}`;
  });
  const sum = Object.entries(times).map(ms).join(" · ");
  return [block(lines.join("\n"), "Trace"), paragraph(`* the slowest path: ${ms(["", total_ms])}${sum && ` = ${sum}`}`, "quiet")];
}

const ms = ([kind, took]) => `${kind} ${took < 10 ? took.toFixed(1) : Math.round(took)} ms`.trim();

function context({ working_set: { exact, model, messages } }) {
  const kind = exact ? "As it was sent" : "Reconstructed from the log";
  return [paragraph(`${kind}, for ${model}`, "quiet"), block(messages.map(pretty).join("\n"), "Messages of the request")];
}

function otherwise({ seq, owes, impossible, uncertain }) {
  const doubts = (title, list) =>
    list.length ? [paragraph(title), block(list.map((one) => `${one.seq} ${one.type}: ${one.reason}`).join("\n"), title)] : [];
  return [
    paragraph(`Without it the log would end with event ${seq} and owe ${owed(owes)}. Nothing was recorded.`),
    ...doubts("Can no longer follow", impossible),
    ...doubts("Might have been otherwise", uncertain),
  ];
}
