"""Numbers as people read them: rounded, with separators of thousands, without an exponent."""

from __future__ import annotations

import pytest

from pgsched.core.text import format_number
from tests.support.paths import ROOT


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.00004, "0.000"),
        (0.0333333, "0.0333"),
        (1, "1"),
        (9.876, "9.88"),
        (99.96, "100"),
        (1335.2, "1,335"),
        (-1335.2, "-1,335"),
        (2_000_000, "2,000,000"),
    ],
)
def test_a_figure_has_no_exponent(value: float, text: str) -> None:
    assert format_number(value) == text


def test_numbers_for_people_are_rounded_in_one_place() -> None:
    """That place is core/text.py. Only durations, which have units, are rounded in core/wording.py."""
    package = ROOT / "pgsched"
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if ".3g}" in path.read_text()}
    assert found == {"core/text.py", "core/wording.py"}
