"""A filter for runs, from the texts of options, of a form or of a URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pgsched.core.input_values import parse_age_or_instant
from pgsched.db.queries.runs.run_filter import Filter, Moment

TEXTS = ("state", "job", "queue", "task", "kind", "error", "tag", "worker")
TIMES = ("since", "until", "ended_since", "ended_until")
FIELDS = (*TEXTS, *TIMES)


def filter_of(
    given: Callable[[str], str | None],
    option: Callable[[str], str] = str,
    moment: Callable[[str, str | None], Moment] = parse_age_or_instant,
) -> Filter:
    """Return the filter of these texts. Raises InputError for a text that is no time; a query checks the rest.

    `given`: returns the text of a field, None where there is none.
    `option`: returns the name of a field in errors.
    `moment`: reads the text of a time.
    """
    texts: dict[str, Any] = {name: given(name) for name in TEXTS}
    times: dict[str, Any] = {name: moment(option(name), given(name)) for name in TIMES}
    return Filter(**texts, **times)
