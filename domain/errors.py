"""The rules that can be broken: each error names one, and says what to do next."""

from __future__ import annotations


class DomainError(Exception):
    """A rule of the conversation refused a command; nothing was recorded."""


class ConversationNotFound(DomainError):
    """There is no such conversation for this caller (absent, somebody else's, or erased: the answer is the same)."""


class SummaryNotFound(DomainError):
    """No summary in force ends there (any more)."""


class ConversationExists(DomainError):
    """The id of a conversation to create is taken."""


class ConversationEnded(DomainError):
    """The conversation was ended and accepts nothing more; start a new one."""


class ConversationIncomplete(DomainError):
    """The conversation is a fork whose copy is not whole yet, or was broken off."""

    def __init__(self) -> None:
        super().__init__(
            "the conversation is a fork whose copy is not whole: try again; "
            "if it was broken off, send the fork again under the same Idempotency-Key"
        )


class CutsTurn(DomainError):
    """A fork would end in the middle of a turn; fork where none runs."""


class NothingToCompact(DomainError):
    """No summary can come of it: no turn has ended yet, or the conversation's settings want none."""


class ConversationBusy(DomainError):
    """The message asked to be refused while the agent is busy; send it again later or with another `when_busy`."""


class StaleResolution(DomainError):
    """The tool call is not pending (any more), or waits for another kind of decision."""


class InvalidInput(DomainError):
    """A value does not fit; `field` names it (dotted path). `others` may not fit either: field and message of each."""

    def __init__(self, field: str, message: str, *others: tuple[str, str]) -> None:
        self.faults = ((field, message), *others)
        super().__init__("; ".join(f"{where}: {said}" for where, said in self.faults))
        self.field, self.message = field, message


class TooLarge(DomainError):
    """The message would be larger than one event may be."""


class IdempotencyMismatch(DomainError):
    """The idempotency key was used before with another body; use a new key."""


class Superseded(DomainError):
    """A worker's decision came too late: another attempt, result, step or turn end has taken its place."""


class UnknownEventType(Exception):
    """The log holds an event that this version of the code does not know."""
