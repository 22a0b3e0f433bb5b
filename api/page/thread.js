/** A conversation as its stream tells it: folds events into what people see. */

import { CallCard } from "./call_card.js";
import { el, paragraph, parts, thinking, when } from "./dom.js";

const TOLD = { suspension: "ask", resolution: "decide", tool_result: "finish" }; // what its card is told of a call
const WAITS = { steer: "joins this turn", interrupt: "is next" };

export class Thread {
  /** Shows itself in the elements `log` and `waiting`; `resolve(tool call id, body)` sends a resolution. */
  constructor(log, waiting, resolve) {
    Object.assign(this, { log, waiting, resolve, title: null, position: 0, hasEnded: false, turn: null, live: null });
    Object.assign(this, { calls: new Map(), unanswered: new Map() });
    log.replaceChildren();
    waiting.replaceChildren();
  }

  get isBusy() {
    return !this.hasEnded && (this.turn !== null || this.unanswered.size > 0);
  }

  /** In the words of the list of conversations: active, suspended, idle or ended. */
  get status() {
    if (!this.isBusy) return this.hasEnded ? "ended" : "idle";
    const open = [...this.calls.values()].filter(({ state }) => state === "running" || state === "pending");
    return open.length && open.every(({ state }) => state === "pending") ? "suspended" : "active";
  }

  /** Take a frame of the stream in; names that are unknown here are passed over. */
  take({ name, data }) {
    if (name === "partial" || name === "delta") return this._hear(name, data);
    this.position = data.position ?? this.position;
    if (name in TOLD) this.calls.get(data.data.tool_call_id)?.[TOLD[name]](data.data);
    else this[`on_${name}`]?.(data.data, data);
  }

  on_conversation_started(data) {
    this.title = data.title ?? this.title;
  }

  on_conversation_changed(data) {
    this.title = data.title ?? this.title;
  }

  on_user_msg(data, { seq, occurred_at }) {
    const meta = paragraph(this.isBusy ? WAITS[data.when_busy] ?? "waits for the next turn" : "sent", "quiet");
    const node = this._article(data.role, data.role === "user" ? "You" : "System", ...parts(data.content), meta);
    const settle = () => {
      meta.textContent = when(occurred_at);
      this.unanswered.delete(data.message_id);
      this._add(node);
    };
    if (!data.respond) return settle();
    this.unanswered.set(data.message_id, { seq, settle });
    this.waiting.append(node);
  }

  on_turn_started(data) {
    this.turn = data.turn;
    for (const id of data.answers) this.unanswered.get(id)?.settle();
  }

  on_turn_resumed(data) {
    this._forget();
    this._add(paragraph(`Another worker took over (attempt ${data.attempt}).`, "note quiet"));
  }

  on_assistant_msg({ content, context_seq, model, usage, latency_ms }) {
    const isUnfolded = this.live?.thinking.open ?? false;
    this._forget();
    for (const { seq, settle } of [...this.unanswered.values()]) if (seq <= context_seq) settle();
    const tokens = usage && `${usage.input_tokens + usage.output_tokens} tokens`;
    const cost = usage?.cost_usd && `$${usage.cost_usd.toFixed(4)}`;
    const seconds = latency_ms && `${(latency_ms / 1000).toFixed(1)} s`;
    const meta = paragraph([model, tokens, cost, seconds].filter(Boolean).join(" · "), "quiet");
    const node = this._article("assistant", "Agent", ...parts(content), meta);
    node.querySelector("details")?.toggleAttribute("open", isUnfolded);
    this._add(node);
  }

  on_tool_call(data) {
    const card = new CallCard(data, (body) => this.resolve(data.tool_call_id, body));
    this.calls.set(data.tool_call_id, card);
    this._add(card.node);
  }

  on_turn_ended({ outcome, reason, detail, partial_text }) {
    this.turn = null;
    this._forget();
    if (partial_text) this._add(this._article("assistant cut", "Agent, cut off", paragraph(partial_text)));
    if (outcome === "cancelled") this._add(paragraph("Stopped.", "note quiet"));
    if (outcome === "failed") this._add(paragraph(`The turn failed: ${detail ? `${reason}: ${detail}` : reason}`, "note problem"));
  }

  on_conversation_ended({ reason }) {
    this.hasEnded = true;
    if (reason) this._add(paragraph(`Ended: ${reason}`, "note quiet"));
  }

  /** What the model is saying: a partial is all so far of its kind, a delta more of it. */
  _hear(name, { turn, step, attempt, try: number, kind, text }) {
    const key = [turn, step, attempt, number].join();
    if (this.live?.key !== key) {
      this._forget();
      this.live = { key, thinking: thinking(""), text: paragraph("") };
      this.live.node = this._article("assistant live", "Agent, writing", this.live.thinking, this.live.text);
      this.live.node.setAttribute("aria-live", "off"); // the whole reply is announced
      this.log.append(this.live.node);
    }
    const target = kind === "thinking" ? this.live.thinking.lastChild : this.live.text;
    target.append(name === "partial" ? (target.replaceChildren(), text) : text);
    this.live.thinking.hidden = !this.live.thinking.lastChild.textContent;
  }

  _forget() {
    this.live?.node.remove();
    this.live = null;
  }

  _article(kind, label, ...children) {
    return el("article", { class: kind, "aria-label": label }, ...children);
  }

  _add(node) {
    this.log.insertBefore(node, this.live?.node ?? null);
  }
}
