"""What replaying shows, in lines for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from api.event_text import call_text, event_text, parts_text
from api.printable import on_one_line, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from api.debugging.moment import Moment
    from api.debugging.seen import SeenByModel
    from api.debugging.steps import Step

_SIGNS = {"add": "+", "remove": "-", "replace": "~", "move": ">", "copy": "&"}


def step_line(step: Step) -> str:
    """Return the event itself."""
    at = f"{step.occurred_at:%Y-%m-%d %H:%M:%S}"
    return f"{step.seq:>5}  {at}  {step.type:<20}  {event_text(step.type, step.data)}".rstrip()


def patch_lines(patch: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line an operation: ``+`` added, ``-`` removed, ``~`` replaced, and where; `seq` always changes."""
    for one in patch:
        if one["path"] == "/seq":
            continue
        sign = _SIGNS.get(one["op"], one["op"])
        if "from" in one:
            yield on_one_line(f"{sign} {one['from']} → {one['path']}")
        else:
            yield on_one_line(f"{sign} {one['path']}" + (f" {_written(one['value'])}" if "value" in one else ""))


def owed_text(owed: Sequence[Mapping[str, Any]], *, amid: bool = False) -> str:
    """Return what is owed, in a line; amid an append nothing is, for nobody sees the log end there."""
    if amid:
        return "(the next event was appended with this one)"
    return "; ".join(map(_owed, owed)) or "nothing"


def context_head(seen: SeenByModel) -> str:
    """Say what kind of working set it is."""
    kind = "as it was sent" if seen.exact else "reconstructed"
    parts = [kind, seen.model, f"{len(seen.messages)} messages", f"about {seen.tokens:,} tokens"]
    if seen.summary_to_seq is not None:
        parts.append(f"summary up to {seen.summary_to_seq}")
    if not seen.complete:
        parts.append("its beginning left out")
    if seen.unanswered:
        calls = len(seen.unanswered)
        parts.append(f"not sent before {calls} {'call has a result' if calls == 1 else 'calls have results'}")
    return ", ".join(parts)


def context_lines(seen: SeenByModel) -> Iterator[str]:
    """Yield a line a message of the working set."""
    for message in seen.messages:
        content = message.get("content")
        said = content if isinstance(content, str) else "" if content is None else _written(content)
        calls = [
            f"→ {call['function']['name']}({call['function']['arguments']})" for call in message.get("tool_calls", ())
        ]
        yield on_one_line(" ".join([f"{message['role']}:", said, *calls]))


def shown_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line a row that people see."""
    for row in rows:
        status = "" if row["status"] == "completed" else f" [{row['status']}]"
        yield f"{row['seq']:>5}  " + on_one_line(f"{row['message_type']}{status}: {_content(row)}")


def state_text(state: Mapping[str, Any]) -> str:
    """Return the state as indented JSON."""
    return printable(json.dumps(state, ensure_ascii=False, indent=2))


def moment_lines(moment: Moment) -> Iterator[str]:
    """Yield everything at a moment."""
    at = f"{moment.occurred_at:%Y-%m-%d %H:%M:%S} UTC" if moment.occurred_at else "before the first event"
    yield f"after event {moment.seq} of {moment.last_seq}, {at}"
    if moment.from_seq > 1:
        yield f"what is context and what people saw is shown from event {moment.from_seq} on"
    yield f"owes: {owed_text(moment.owes, amid=moment.amid)}"
    yield "state:"
    yield from (f"  {line}" for line in state_text(moment.state).splitlines())
    yield f"context ({context_head(moment.working_set)}):"
    yield from (f"  {line}" for line in context_lines(moment.working_set))
    yield "people saw:"
    yield from (f"  {line}" for line in shown_lines(moment.messages))


def _owed(item: Mapping[str, Any]) -> str:
    match item:
        case {"kind": "await_input", "until": until, "pending": pending}:
            return f"await_input {' '.join(pending)}" + (f" until {until}" if until else "")
        case {"kind": kind, **more}:
            values = [" ".join(value) if isinstance(value, list) else str(value) for value in more.values()]
            return " ".join([kind, *values])
    return _written(item)


def _content(row: Mapping[str, Any]) -> str:
    content = row["content"]
    match row["content_type"]:
        case "tool_call":
            return call_text(content["name"], content.get("args"))
        case "tool_result":
            return f"result {content['status']}: {parts_text(content['content'])}"
        case "text" | "thinking" | "error" | "notification":
            return str(content.get("text") or "") + (f" ({content['reason']})" if content.get("reason") else "")
        case _:
            return f"[{row['content_type']}]"


def _written(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
