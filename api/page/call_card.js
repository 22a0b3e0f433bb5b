/** One tool call: what the agent wants, what became of it, and a form for whoever has to decide. */

import { answerFields, jsonField } from "./answer_fields.js";
import { explain } from "./api.js";
import { block, button, el, paragraph, parts, pretty, when } from "./dom.js";

const STATES = { pending: "needs an answer", ok: "done", error: "failed" }; // else they are called what they are
const DECIDED = { approved: "Approved", edited: "Edited and approved", rejected: "Rejected", answered: "Answered" };
const NUMBER = { type: "number" };
const PLACE = { properties: { latitude: NUMBER, longitude: NUMBER }, required: ["latitude", "longitude"] };

export class CallCard {
  /** `call` is {tool_call_id, name, args}; `resolve` sends a resolution, and fails with what the server says. */
  constructor(call, resolve) {
    Object.assign(this, { call, resolve, chip: el("span", { class: "chip" }) });
    const isEmpty = call.args == null || Object.keys(call.args).length === 0;
    const glance = el("span", { class: "glance" }, isEmpty ? "" : JSON.stringify(call.args));
    this.summary = el("summary", {}, el("b", {}, call.name), glance, this.chip);
    this.args = isEmpty ? null : block(pretty(call.args), "Arguments");
    this.body = el("div", {}, this.args);
    const label = `Tool call ${call.name}`;
    this.node = el("details", { class: "call", "aria-label": label, open: true }, this.summary, this.body);
    this._show("running");
  }

  /** Ask for a decision: {kind, prompt, response_schema, expires_at}. */
  ask(question) {
    const isSame = this.state === "pending" && this.question.kind === question.kind;
    this.question = question;
    if (!isSame) this._open();
    this.deadline.textContent = question.expires_at ? `Waits until ${when(question.expires_at)}.` : "";
  }

  _open() {
    const { kind, prompt } = this.question;
    this._show("pending");
    this.node.open = true;
    const onsubmit = (event) => {
      event.preventDefault();
      this._submit();
    };
    this.fields = el("fieldset");
    this.problem = el("p", { class: "problem", role: "alert" });
    this.deadline = paragraph("", "quiet");
    const label = `Decide ${this.call.name}`;
    this.form = el("form", { onsubmit, "aria-label": label }, this.fields, this.problem, this.deadline);
    if (kind !== "approval") this.form.prepend(paragraph(prompt)); // else it repeats the arguments
    this.args?.toggleAttribute("hidden", Object.values(this.call.args).join() === prompt);
    this.body.append(this.form);
    this._begin();
  }

  /** Show a resolution: {outcome, args, reason, by}. */
  decide({ outcome, args, reason, by }) {
    if (this.form?.contains(document.activeElement)) this.summary.focus();
    this.form?.remove();
    this._show("running");
    const said = `${DECIDED[outcome]} by ${by.id ?? by.kind}${reason ? `: ${reason}` : "."}`;
    if (outcome in DECIDED) this.body.append(paragraph(said, "quiet"));
    if (outcome === "edited") this.body.append(block(pretty(args), "Arguments that ran"));
  }

  /** Show the result: {status, content}. */
  finish({ status, content }) {
    this._show(status);
    this.body.append(el("div", { class: "result", role: "group", "aria-label": "Result" }, ...parts(content)));
    if (status === "ok") this.node.open = false;
  }

  _show(state) {
    this.state = this.node.dataset.state = state;
    this.chip.textContent = STATES[state] ?? state;
  }

  _begin() {
    const reject = button("Reject…", () => this._reject());
    if (this.question.kind === "approval") {
      return this._step(() => ({ outcome: "approve" }), [], "Approve", button("Edit…", () => this._edit()), reject);
    }
    const isPlace = this.call.name === "get_location" && !this.question.response_schema?.properties;
    const answer = answerFields(isPlace ? PLACE : this.question.response_schema, "Answer");
    const locate = isPlace && navigator.geolocation ? [button("Use my location", () => this._locate(answer.node))] : [];
    this._step(() => ({ outcome: "answer", answer: answer.value() }), [answer.node], "Answer", ...locate, reject);
  }

  _edit() {
    const field = jsonField("Arguments (JSON)", this.call.args);
    this._step(() => ({ outcome: "edit", args: field.value() }), [field.node], "Run with these", this._back());
  }

  _reject() {
    const reason = el("input", { dir: "auto", maxlength: 10_000 });
    const decision = () => ({ outcome: "reject", ...(reason.value && { reason: reason.value }) });
    this._step(decision, [el("label", {}, "Reason, for the agent (optional)", reason)], "Reject", this._back());
  }

  _back() {
    return button("Back", () => this._begin());
  }

  /** Show fields and buttons, the first of which sends the `decision`. */
  _step(decision, fields, label, ...others) {
    const hadFocus = this.fields.contains(document.activeElement);
    const buttons = el("p", { class: "buttons" }, el("button", { class: "primary" }, label), ...others);
    this.decision = decision;
    this.problem.textContent = "";
    this.fields.replaceChildren(...fields, buttons);
    if (hadFocus) this.fields.querySelector("input, textarea, button").focus();
  }

  async _submit() {
    this.problem.textContent = "";
    try {
      const decision = this.decision();
      this.fields.disabled = true;
      await this.resolve(decision);
    } catch (error) {
      this.fields.disabled = false;
      this.problem.textContent = explain(error);
    }
  }

  _locate(node) {
    const [latitude, longitude] = node.querySelectorAll("input");
    const found = ({ coords }) => ([latitude.value, longitude.value] = [coords.latitude, coords.longitude]);
    const failed = (error) => (this.problem.textContent = `No location: ${error.message}`);
    navigator.geolocation.getCurrentPosition(found, failed);
  }
}
