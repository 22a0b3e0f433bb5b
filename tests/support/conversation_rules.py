"""The rules of a conversation that hold after whatever anybody did: invariants for machines that do anything."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, cast

from hypothesis.stateful import RuleBasedStateMachine, invariant

from domain import events
from domain.conversation import Conversation
from domain.owes import AwaitInput, CallModel, CloseTurn, Expire, RunTools, StartTurn, owes
from domain.snapshots import dump, restore
from domain.wire import decode
from domain.working_set import working_set
from tests.support.given import ADA, CONVERSATION, NOW, ran, reject, reply, stored

if TYPE_CHECKING:
    from datetime import datetime

    from domain.event_envelope import ConversationEvent
    from domain.owes import Owed


class ConversationRules(RuleBasedStateMachine):
    """A machine whose `log` is that of one conversation, of which `conversation` is the fold."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[ConversationEvent] = []
        self.conversation = Conversation.at(CONVERSATION)
        self.now = NOW

    def teardown(self) -> None:
        """Show that nothing is stuck: what is owed now leads to rest, whether people answer or nobody ever does."""
        if self.log:
            settled(self.conversation.copied(), self.now, people=True)
            settled(self.conversation.copied(), self.now, people=False)

    @invariant()
    def t1_turns_open_and_end_one_after_the_other(self) -> None:
        frames = [e for e in self.log if isinstance(e, (events.TurnStarted, events.TurnEnded))]
        assert [(frame.turn, type(frame)) for frame in frames] == [
            (n // 2 + 1, events.TurnEnded if n % 2 else events.TurnStarted) for n in range(len(frames))
        ]
        assert (self.conversation.turn is not None) == bool(len(frames) % 2)

    @invariant()
    def t11_every_call_has_at_most_one_result_and_none_is_open_outside_of_a_turn(self) -> None:
        called = [e.tool_call_id for e in self.log if isinstance(e, events.ToolCall)]
        results = Counter(e.tool_call_id for e in self.log if isinstance(e, events.ToolResult))
        assert set(results.values()) <= {1}
        assert set(called) - set(results) == set(self.conversation.calls)
        assert self.conversation.turn or not self.conversation.calls

    @invariant()
    def pending_is_what_was_suspended_and_not_resolved(self) -> None:
        pending = set()
        for event in self.log:
            if isinstance(event, events.Suspension):
                pending.add(event.tool_call_id)
            if isinstance(event, events.Resolution):
                assert event.tool_call_id in pending
                pending.remove(event.tool_call_id)
        assert pending == {key for key, call in self.conversation.calls.items() if call.question}

    @invariant()
    def every_message_is_answered_or_waits(self) -> None:
        asked = [e.message_id for e in self.log if isinstance(e, events.UserMsg) and e.respond]
        answered = [m for e in self.log if isinstance(e, events.TurnStarted) for m in e.answers]
        assert len(answered) == len(set(answered))
        waiting = set(self.conversation.waiting)
        assert not waiting & set(answered)
        for event in self.log:
            if isinstance(event, events.UserMsg) and event.respond and event.message_id not in {*answered, *waiting}:
                assert event.when_busy == "steer"
                replies = [e for e in self.log if isinstance(e, events.AssistantMsg) and e.seq > event.seq]
                assert any(e.context_seq >= event.seq for e in replies)
        assert waiting <= set(asked)

    @invariant()
    def it_is_never_stuck(self) -> None:
        owed = owes(self.conversation, self.now)
        assert bool(owed) == (self.conversation.busy and not self.conversation.ended)
        for item in owed:
            match item:
                case RunTools(calls):
                    assert all(self.conversation.calls[call].executor == "server" for call in calls)
                case CallModel():
                    assert owed == (CallModel(),)
                    working_set(self.log, system_prompt=None, model="demo")
                case AwaitInput(_, until):
                    assert until is None or until > self.now

    @invariant()
    def nothing_follows_the_end(self) -> None:
        finished = [n for n, e in enumerate(self.log) if isinstance(e, events.ConversationFinished)]
        assert finished in ([], [len(self.log) - 1])

    @invariant()
    def snapshots_and_copies_are_the_same_state(self) -> None:
        state = dump(self.conversation)
        assert dump(restore(CONVERSATION, json.loads(json.dumps(state)))) == state
        assert dump(self.conversation.copied()) == state

    @invariant()
    def r3_loading_from_the_newest_turn_is_the_same_state(self) -> None:
        assert dump(loaded_from_tail(self.log)) == dump(Conversation.at(CONVERSATION).fold(self.log))
        assert dump(self.conversation) == dump(Conversation.at(CONVERSATION).fold(self.log))


def settled(conversation: Conversation, now: datetime, *, people: bool) -> None:
    """Do what is owed, by a model that calls no tools, until nothing is; people answer, or the deadlines pass."""
    steps = 2 * len(conversation.calls) + 2 * (len(conversation.waiting) + 2)
    while owed := owes(conversation, now):
        assert steps > 0, f"it does not come to rest: {owed}"
        steps -= 1
        item = owed[0]
        if isinstance(item, AwaitInput) and not people:
            if item.until is None:
                return  # it may wait for ever
            now = item.until
            continue
        _do(item, conversation, now)
        conversation = _read_again(conversation)


def _do(item: Owed, conversation: Conversation, now: datetime) -> None:
    turn = conversation.turn
    match item:
        case StartTurn():
            conversation.start_turn(now=now)
        case AwaitInput((call, *_)):
            conversation.resolve(reject(call), now=now, actor=ADA)
        case Expire(calls):
            conversation.expire(calls, now=now)
        case CallModel() if turn:
            said = reply(step=turn.step + 1, context_seq=conversation.version)
            conversation.record_reply(turn.number, turn.attempt, said, now=now)
        case RunTools((call, *_)) if turn:
            conversation.record_result(turn.number, turn.attempt, ran(call), now=now)
        case CloseTurn(reason) if turn:
            conversation.fail_turn(turn.number, turn.attempt, reason, now=now)


def _read_again(conversation: Conversation) -> Conversation:
    """Check that what was decided can be stored, and go on with nothing pending."""
    for event in cast("list[ConversationEvent]", list(conversation.collect_events())):
        assert decode(stored(event)) == event
    return conversation.copied()


def loaded_from_tail(log: list[ConversationEvent]) -> Conversation:
    """Fold from the newest `turn_started` on, with what it and the first event say of the time before."""
    turn = next((event for event in reversed(log) if isinstance(event, events.TurnStarted)), None)
    if turn is None:
        return Conversation.at(CONVERSATION).fold(log)
    conversation = Conversation.at(CONVERSATION, turn.seq - 1)
    first, in_force = log[0], log[turn.settings_seq - 1]
    assert isinstance(first, events.ConversationStarted)
    assert isinstance(in_force, (events.ConversationStarted, events.ConversationChanged))
    conversation.tenant, conversation.owner = first.tenant, first.owner
    conversation.settings, conversation.metadata = in_force.settings, in_force.metadata
    conversation.settings_seq = in_force.seq
    return conversation.fold(log[turn.seq - 1 :])
