/** The list of conversations and the inbox: looked at again every few seconds, and after what happens here. */

import { command, explain, Problem, query } from "./api.js";
import { CallCard } from "./call_card.js";
import { byId, el, sleep, when } from "./dom.js";

export const STATUS = { active: "working", suspended: "needs an answer", idle: "idle", ended: "ended" };
const REFRESH_MS = 5000;

const rows = new Map(); // {item, node} of a conversation, by its id
const cards = new Map(); // the element of a pending call, by its id and kind
let [next, wanted, wake] = [undefined, 0, () => {}];
let shown = ""; // the search that `rows` are the results of

/** Send a person's decision on a tool call. */
export async function resolve(conversation, call, body) {
  const receipt = await command(`v1/conversations/${conversation}/tool-calls/${call}/resolution`, body);
  lookAgain(receipt.position);
}

/** Look again, at what is at least as new as this position. */
export function lookAgain(position = 0) {
  wanted = Math.max(wanted, position);
  wake();
}

export async function keepLooking() {
  for (;;) {
    const woken = new Promise((resolve) => (wake = resolve));
    if (!document.hidden) await look();
    await Promise.all([sleep(200), Promise.race([woken, sleep(REFRESH_MS)])]);
  }
}

async function look() {
  const fresh = wanted ? { min_position: wanted } : {};
  wanted = 0;
  try {
    const pending = query("v1/tool-calls", { status: "pending", ...fresh });
    const [calls] = await Promise.all([pending, list(fresh)]);
    showInbox(calls);
    byId("outage").textContent = "";
  } catch (error) {
    const isBehind = error instanceof Problem && error.status === 503;
    byId("outage").textContent = isBehind ? "" : explain(error);
  }
}

byId("more").addEventListener("click", async () => {
  try {
    await list({ cursor: next });
  } catch (error) {
    byId("outage").textContent = explain(error);
  }
});

byId("search").addEventListener("input", () => lookAgain());

/** Show a page of the list, or of what is searched for. */
async function list(asked) {
  const q = byId("search").value.trim();
  const page = await query("v1/conversations", { ...asked, ...(q && { q }) });
  if (q !== byId("search").value.trim()) return; // more was typed meanwhile
  if (q !== shown) {
    rows.clear();
    [shown, next] = [q, undefined];
  }
  if (asked.cursor || next === undefined) next = page.next_cursor;
  showConversations(page.items);
}

function showConversations(items) {
  for (const item of items) {
    const node = rows.get(item.id)?.node ?? el("li", {}, el("a", { href: `#/c/${item.id}` }));
    rows.set(item.id, { item, node });
    node.firstChild.replaceChildren(
      el("span", { class: "title", dir: "auto" }, item.title ?? `Untitled ${item.id.slice(0, 8)}`),
      el("span", { class: "status", "data-status": item.status }, STATUS[item.status]),
      el("time", { class: "quiet", datetime: item.updated_at }, when(item.updated_at)),
    );
  }
  const byActivity = (a, b) => (a.item.updated_at < b.item.updated_at ? 1 : -1);
  const newest = [...rows.values()].sort(byActivity).map(({ node }) => node);
  const [place, focused] = [byId("conversations"), document.activeElement];
  const isSame = newest.length === place.children.length && newest.every((node, at) => place.children[at] === node);
  if (!isSame) place.replaceChildren(...newest);
  if (place.contains(focused)) focused.focus({ preventScroll: true });
  byId("no-conversations").textContent = shown ? "Nothing found." : "None yet.";
  byId("no-conversations").hidden = newest.length > 0;
  byId("more").hidden = !next;
  markCurrent();
}

/** Mark the links that lead to where we are. */
export function markCurrent() {
  for (const link of document.querySelectorAll("aside a")) {
    if (link.hash && link.hash === location.hash) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function showInbox({ items, next_cursor }) {
  byId("inbox-count").textContent = `${items.length}${next_cursor ? "+" : ""}`;
  byId("inbox-count").hidden = !items.length;
  byId("no-calls").hidden = items.length > 0;
  const waiting = new Map(items.map((item) => [`${item.tool_call_id} ${item.kind}`, item]));
  for (const [key, node] of cards) {
    if (waiting.has(key)) continue;
    if (node.contains(document.activeElement)) byId("inbox-title").focus();
    node.remove();
    cards.delete(key);
  }
  for (const [key, item] of waiting) {
    if (cards.has(key)) continue;
    const card = new CallCard(item, (body) => resolve(item.conversation_id, item.tool_call_id, body));
    card.ask(item);
    card.body.append(el("p", {}, el("a", { href: `#/c/${item.conversation_id}` }, "Open the conversation")));
    cards.set(key, card.node);
    byId("calls").append(card.node);
  }
}
