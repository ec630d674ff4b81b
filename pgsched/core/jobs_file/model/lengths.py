"""The types of lengths of time, and of how long ended runs are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgsched.core.input_values import time_of_day_problem
from pgsched.core.jobs_file.model.spans import Span, read_span, span_of
from pgsched.core.jobs_file.model.types import Type, WrongValue, shorten_value
from pgsched.core.text import did_you_mean

TEN_YEARS = Span(months=120)
OUTCOMES = ("succeeded", "dead", "cancelled", "skipped", "missed", "any")


@dataclass(frozen=True, slots=True)
class Length(Type):
    """A length of time: a text such as `90s` or `2 hours`, or a number of seconds.

    `or_zero`: zero is allowed too, although it is less than `least`.
    `no_time_of_day`: `06:00` is refused, as it may be meant as a time of the day.
    """

    least: Span
    most: Span = TEN_YEARS
    or_zero: bool = False
    no_time_of_day: bool = False

    def read(self, value: Any) -> Span:
        """Read the text or number."""
        span = None
        if self.no_time_of_day and (problem := time_of_day_problem(value)) is not None:
            raise WrongValue(problem)
        if isinstance(value, str):
            span = read_span(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e9:
            span = span_of(value)
        if span is None:
            raise WrongValue(f"{shorten_value(value)} is not a length of time such as 90s, 10 minutes or 2h")
        if not self.least.total <= span.total <= self.most.total and not (self.or_zero and span.total == 0):
            zero = ", or 0" if self.or_zero else ""
            raise WrongValue(f"{span} is out of range: from {self.least} to {self.most}{zero}")
        return span

    def show(self, value: Span) -> str:
        """Return the length in words."""
        return str(value)

    def load(self, value: Any) -> Any:
        """Read PostgreSQL's text of an interval."""
        return None if value is None else read_span(value) or value

    def send(self, value: Span) -> str:
        """Return text that PostgreSQL reads as the interval."""
        return str(value)


class Keep(Type):
    """How long ended runs are kept: one length of time, or several by outcome. The value has them by outcome."""

    _length = Length(Span())

    def read(self, value: Any) -> dict[str, Span]:
        """Read the length or the mapping."""
        given = value if isinstance(value, dict) else {"any": value}
        for outcome in given:
            if outcome not in OUTCOMES:
                raise WrongValue(
                    f"{shorten_value(outcome)} is not one of {', '.join(OUTCOMES)}{did_you_mean(outcome, OUTCOMES)}"
                )
        return {outcome: self._length.read(one) for outcome, one in sorted(given.items())}

    def show(self, value: dict[str, Span]) -> dict[str, str]:
        """Return the lengths in words."""
        return {outcome: str(one) for outcome, one in value.items()}

    def load(self, value: Any) -> Any:
        """Read PostgreSQL's texts of the intervals."""
        return None if value is None else {outcome: self._length.load(one) for outcome, one in sorted(value.items())}

    def send(self, value: dict[str, Span]) -> dict[str, str]:
        """Return texts that PostgreSQL reads as the intervals."""
        return {outcome: self._length.send(one) for outcome, one in value.items()}
