"""Text from others is shown to people with its control and invisible characters escaped."""

from __future__ import annotations

import unicodedata

import pytest

from pgsched.control_characters import CONTROL, escape_controls

# Format characters that are visible, and not escaped: marks of Arabic, Kaithi and hieroglyphs.
LEFT_ALONE = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0x13430, 0x13440)}
# Characters outside the class Cf that Unicode calls invisible (Default_Ignorable_Code_Point), also unassigned ones.
IGNORED = {0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x2060, 0x2070), 0x3164,
           *range(0xFE00, 0xFE10), 0xFFA0, *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000)}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pay\u202eroll", r"pay\u202eroll"),
        ("night\u200bly", r"night\u200bly"),
        ("night\u200dly", r"night\u200dly"),
        ("\u200dnightly", r"\u200dnightly"),
        ("night\ufe00ly", r"night\ufe00ly"),
        ("\ufeffnightly\u00ad", r"\ufeffnightly\xad"),
        ("a\U000e0041b", r"a\U000e0041b"),
        ("a\x9b31m\x1b[2J\x7f\n", r"a\x9b31m\x1b[2J\x7f\n"),
        ("\ud800", r"\ud800"),
        ("a\u200b\u200db", r"a\u200b\u200db"),
        ("ä\u200db", r"ä\u200db"),
        ("ạ\ufe0f", r"ạ\ufe0f"),
        ("\u0430\u200d \u03b1\u200c", "\u0430" r"\u200d" " \u03b1" r"\u200c"),  # Cyrillic, Greek
        ("می\u200c\u200c\u200cخ", "می\u200c\u200c" r"\u200c" "خ"),
        ("a\U000e0100b", r"a\U000e0100b"),
        ("a\u2800", r"a\u2800"),
        ("葛\U000e0100 ©\ufe0f", "葛\U000e0100 ©\ufe0f"),  # a selector of a letter's form
        ("👩\u200d👩\u200d👧 ❤\ufe0f\u200d🔥", "👩\u200d👩\u200d👧 ❤\ufe0f\u200d🔥"),  # joiners within two pictures
        ("می\u200cخواهم", "می\u200cخواهم"),  # how Persian is written
        ("ä ö 日本語", "ä ö 日本語"),
    ],
)
def test_invisible_characters_are_escaped_unless_the_text_needs_them(text: str, shown: str) -> None:
    assert escape_controls(text) == shown


def test_every_invisible_character_of_unicode_is_escaped() -> None:
    """The classes are Unicode's: controls, formats, separators of lines and paragraphs, and surrogates."""
    kinds = {"Cc", "Cf", "Zl", "Zp", "Cs"}
    of_the_kind = {code for code in range(0x110000) if unicodedata.category(chr(code)) in kinds} | IGNORED
    assert [hex(code) for code in of_the_kind - LEFT_ALONE if not CONTROL.match(chr(code))] == []
