"""What a model call has used so far: kept beside it, so that it is known however the call ends."""

from __future__ import annotations

from domain.usage import Usage


class Spending:
    """The usage that providers reported for the tries of one call, those that failed or were stopped too."""

    def __init__(self) -> None:
        self._by_model: dict[str, list[Usage]] = {}
        self._model = ""
        self._reported = False

    def begin_try(self, model: str) -> None:
        """Begin the next try."""
        self._model, self._reported = model, False

    def report(self, usage: Usage | None) -> None:
        """Take the newest report of the running try, which says all that it has used; None says nothing."""
        if usage is None:
            return
        tries = self._by_model.setdefault(self._model, [])
        if self._reported:
            tries.pop()
        tries.append(usage)
        self._reported = True

    @property
    def of_model(self) -> Usage | None:
        """The sum over the tries of the model that was asked last; None where none was reported."""
        return _sum(self._by_model.get(self._model, []))

    @property
    def of_others(self) -> list[Usage]:
        """One sum for each model that was asked before."""
        return [usage for name, tries in self._by_model.items() if name != self._model and (usage := _sum(tries))]

    @property
    def all(self) -> list[Usage]:
        """One sum for each model."""
        return [*self.of_others, *([self.of_model] if self.of_model else [])]


def _sum(tries: list[Usage]) -> Usage | None:
    if not tries:
        return None
    costs = [usage.cost_usd for usage in tries if usage.cost_usd is not None]
    return Usage(
        model=tries[-1].model,
        calls=sum(usage.calls for usage in tries),
        input_tokens=sum(usage.input_tokens for usage in tries),
        output_tokens=sum(usage.output_tokens for usage in tries),
        cached_tokens=sum(usage.cached_tokens for usage in tries),
        cost_usd=sum(costs) if costs else None,
    )
