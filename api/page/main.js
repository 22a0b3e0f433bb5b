/** The page: the conversation that is open and what people do in it; the address says which one. */

import { command, explain, follow, forgetKey, hasKey } from "./api.js";
import { byId } from "./dom.js";
import { keepLooking, lookAgain, markCurrent, resolve, STATUS } from "./overview.js";
import { showSteps } from "./steps.js";
import { Thread } from "./thread.js";

const TITLE_LENGTH = 60;
const [text, scroll] = [byId("text"), byId("scroll")];
let open = { id: null, thread: null, stop: () => {} };
let isAtEnd = true; // of the text, so what is new is scrolled to

const path = (what = "") => `v1/conversations/${open.id}${what}`;

function route() {
  const [, view = "home", id = null] = location.hash.match(/^#\/(new|inbox|c|steps)(?:\/([\w-]+))?$/) ?? [];
  document.body.dataset.view = view;
  byId("inbox").hidden = view !== "inbox";
  byId("stepping").hidden = view !== "steps";
  byId("talk").hidden = view === "inbox" || view === "steps";
  byId("steps-link").hidden = view !== "c";
  byId("steps-link").href = `#/steps/${id}`;
  byId("talk-link").href = `#/c/${id}`;
  open.stop();
  tell("live");
  complain("");
  const thread = new Thread(byId("log"), byId("waiting"), (call, body) => resolve(id, call, body));
  open = { id, thread, stop: () => {} };
  isAtEnd = true;
  if (id && view === "c") open.stop = follow(path("/stream"), (frames) => take(thread, frames), tell);
  show();
  markCurrent();
  if (view === "steps") showSteps(id);
  if (view === "steps") document.title = "Steps · Rejoinder";
  else if (view === "inbox") document.title = "Inbox · Rejoinder";
  else if (view !== "home" && matchMedia("(pointer: fine)").matches) text.focus();
}

function take(thread, frames) {
  const before = thread.position;
  for (const frame of frames) thread.take(frame);
  show();
  if (thread.position > before) lookAgain(thread.position);
  if (isAtEnd) scroll.scrollTop = scroll.scrollHeight;
}

function show() {
  const { id, thread } = open;
  const isKnown = thread.position > 0;
  const title = id ? thread.title ?? (isKnown ? "Untitled" : "…") : "New conversation";
  byId("title").textContent = title;
  document.title = `${title} · Rejoinder`;
  byId("status").dataset.status = thread.status;
  byId("status").textContent = isKnown ? STATUS[thread.status] : "";
  const waiting = thread.turn === null ? 0 : thread.unanswered.size;
  byId("queue").textContent = waiting ? `${waiting} ${waiting === 1 ? "message waits" : "messages wait"}` : "";
  byId("busy").hidden = byId("stop").hidden = !thread.isBusy;
  byId("working").hidden = thread.status !== "active" || thread.live !== null;
  byId("welcome").hidden = Boolean(id);
  byId("end").hidden = !isKnown || thread.hasEnded;
  byId("ended").hidden = !thread.hasEnded;
  byId("composer").hidden = thread.hasEnded;
  byId("forget-key").hidden = !hasKey();
}

function tell(connection, reason = "") {
  byId("connection").textContent = connection === "lost" ? "reconnecting…" : "";
  if (connection !== "gone") return;
  complain(reason);
  byId("composer").hidden = byId("end").hidden = true;
}

function complain(message) {
  byId("notice").textContent = message;
  byId("notice").hidden = !message;
}

/** Do what a person asked for, and show them if it fails. */
async function attempt(action) {
  complain("");
  try {
    await action();
  } catch (error) {
    complain(explain(error));
  }
}

async function send() {
  const content = text.value;
  if (!content.trim() || text.readOnly) return;
  text.readOnly = true;
  await attempt(() => (open.id ? sayMore(content) : start(content)));
  text.readOnly = false;
}

async function sayMore(content) {
  const when_busy = open.thread.isBusy ? { when_busy: byId("when-busy").value } : {};
  await command(path("/messages"), { content, ...when_busy });
  isAtEnd = true;
  clear();
}

async function start(content) {
  const { thread } = open;
  const line = content.trim().split("\n")[0];
  const title = line.length > TITLE_LENGTH ? `${line.slice(0, TITLE_LENGTH)}…` : line;
  const created = await command("v1/conversations", { title, message: { content } });
  clear();
  if (open.thread === thread) location.hash = `#/c/${created.conversation_id}`;
}

function clear() {
  text.value = "";
  fit();
}

function fit() {
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight + 2}px`;
}

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
text.addEventListener("input", fit);
scroll.addEventListener("scroll", () => {
  isAtEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
});
text.addEventListener("keydown", (event) => {
  const isLine = event.shiftKey || event.isComposing || matchMedia("(pointer: coarse)").matches;
  if (event.key !== "Enter" || isLine) return;
  event.preventDefault();
  send();
});
byId("tries").addEventListener("click", ({ target }) => {
  if (target.localName !== "button") return;
  text.value = target.textContent;
  send();
});
byId("stop").addEventListener("click", () => attempt(() => command(path("/cancel"), {})));
byId("end").addEventListener("click", () => byId("end-dialog").showModal());
byId("end-dialog").addEventListener("close", ({ target }) => {
  if (target.returnValue === "end") attempt(() => command(path("/end"), {}));
  target.returnValue = "";
});
byId("forget-key").addEventListener("click", () => {
  forgetKey();
  location.reload();
});
addEventListener("hashchange", route);
document.addEventListener("visibilitychange", () => lookAgain());
route();
keepLooking();
