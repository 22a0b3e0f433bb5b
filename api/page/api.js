/** The HTTP API: requests under the key, commands that are safe to repeat, and streams that come back. */

import { byId, sleep } from "./dom.js";

const KEY = "rejoinder-key";
const PAUSES_MS = [300, 1000, 2000, 5000];
const SILENCE_MS = 40_000; // a stream says something every 15 s

/** An answer that says no (RFC 9457), in words for people. */
export class Problem extends Error {
  constructor(status, { title, detail, errors = [] }) {
    const faults = errors.map(({ field, message }) => (message.startsWith(field) ? message : `${field}: ${message}`));
    super(faults.join("\n") || detail || title || `The server answered ${status}.`);
    this.status = status;
  }
}

export const explain = (error) => (error instanceof TypeError ? "The server cannot be reached." : error.message);

export const hasKey = () => Boolean(sessionStorage.getItem(KEY));

export const forgetKey = () => sessionStorage.removeItem(KEY);

let asking = null;

/** Ask for a key, once for all who need it; closed without one, the next 401 leads here again. */
function askForKey() {
  asking ??= new Promise((resolve) => {
    const [dialog, input] = [byId("key-dialog"), byId("key")];
    byId("key-refused").hidden = !hasKey();
    const take = () => {
      sessionStorage.setItem(KEY, input.value);
      input.value = "";
      byId("forget-key").hidden = false;
      asking = null;
      resolve();
    };
    dialog.addEventListener("close", take, { once: true });
    dialog.showModal();
  });
  return asking;
}

async function call(path, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
    const response = await fetch(path, { ...options, headers });
    if (response.ok) return response;
    if (response.status !== 401) throw new Problem(response.status, await response.json().catch(() => ({})));
    if (key === sessionStorage.getItem(KEY)) await askForKey();
  }
}

export const query = async (path, parameters) => (await call(`${path}?${new URLSearchParams(parameters)}`)).json();

const unanswered = new Map(); // what was sent and may have arrived, with its Idempotency-Key

/** Send a command until it is answered; whoever sends it again after an outage repeats it under the same key. */
export async function command(path, body) {
  const text = JSON.stringify(body);
  const sent = `${path} ${text}`;
  const key = unanswered.get(sent) ?? crypto.getRandomValues(new Uint32Array(4)).join("-");
  unanswered.set(sent, key);
  const headers = { "Content-Type": "application/json", "Idempotency-Key": key };
  for (const pause of [...PAUSES_MS, null]) {
    try {
      const answer = await (await call(path, { method: "POST", body: text, headers })).json();
      unanswered.delete(sent);
      return answer;
    } catch (error) {
      const isRefused = error instanceof Problem && error.status < 500;
      if (isRefused) unanswered.delete(sent);
      if (isRefused || pause === null) throw error;
      await sleep(pause);
    }
  }
}

/**
 * Follow a stream, history first, and come back with its cursor whenever the connection is lost.
 *
 * `take` gets lists of {name, data}; `tell` how it stands: "live", "lost", or "gone" with the reason. Returns a stop.
 */
export function follow(path, take, tell) {
  const stop = new AbortController();
  const run = async () => {
    let [cursor, failures] = [0, 0];
    while (!stop.signal.aborted) {
      try {
        for await (const frames of read(`${path}?after=${cursor}`, stop.signal)) {
          [cursor, failures] = [frames.findLast(({ id }) => id)?.id ?? cursor, 0];
          tell("live");
          take(frames);
        }
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error instanceof Problem && error.status < 500) return tell("gone", error.message);
        if (!(error instanceof Problem || error instanceof TypeError || error instanceof DOMException)) throw error;
      }
      if (stop.signal.aborted) return;
      tell("lost");
      await sleep(PAUSES_MS[Math.min(failures++, PAUSES_MS.length - 1)]);
    }
  };
  run();
  return () => stop.abort();
}

async function* read(path, stopped) {
  const silence = new AbortController();
  let timer;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(), SILENCE_MS);
  };
  heard();
  try {
    const response = await call(path, { signal: AbortSignal.any([stopped, silence.signal]) });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = "", next; !(next = await reader.read()).done && !stopped.aborted; heard()) {
      const frames = (text + next.value).split("\n\n");
      text = frames.pop();
      yield frames.filter((frame) => !frame.startsWith(":")).map(parsed);
    }
  } finally {
    clearTimeout(timer);
  }
}

function parsed(frame) {
  const fields = Object.fromEntries(frame.split("\n").map((line) => line.split(/: (.*)/s, 2)));
  return { id: fields.id, name: fields.event, data: JSON.parse(fields.data) };
}
