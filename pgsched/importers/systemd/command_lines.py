"""Read the command lines of services: ExecStart= and its kin.

Invariant: a command has the arguments that systemd would pass, or it is refused.

The rules are those of systemd.service(5), "Command lines", and systemd.syntax(7), "Quoting". Words may be in quotes,
with escapes as in C. `$NAME` and `${NAME}` are from Environment=; `$$` and specifiers are replaced. A lone `;`
separates commands. Signs may stand before the program. `-`: a failure does not count. `@`: the second word is the name
that the program sees as its own. `:`: no variables are put in. `+`, `!`, `!!`: with other rights, and `|`: by a shell
of the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pgsched.importers.systemd.units import Unit

ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"', "'": "'",
           "s": " "}  # fmt: skip
CODED = re.compile(r"x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})")
VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)")
WHOLE_VARIABLE = re.compile(r"\$([A-Za-z_]\w*)")
PREFIX = re.compile(r"[-@:+!|]*")
MOST_CHARACTERS = 1024 * 1024  # of a command: it may name a long variable many times
NOT_CARRIED = {"@": "another argv[0]", "+": "full rights", "!": "other rights", "|": "the user's shell"}


class CommandRefused(Exception):
    """A command line that cannot be carried over; the text says why."""


@dataclass(frozen=True, slots=True)
class ServiceCommand:
    """A program with its arguments. `may_fail`: its failure does not count."""

    words: tuple[str, ...]
    may_fail: bool = False


def parse_commands(unit: Unit, value: str, variables: Mapping[str, str]) -> list[ServiceCommand]:
    """Return the commands of one setting. Raises CommandRefused, and UnresolvedSpecifier."""
    commands: list[list[tuple[str, bool]]] = [[]]
    for word, quoted in split_quoted(value):
        if word == ";" and not quoted:
            commands.append([])
        else:
            commands[-1].append((";" if word == "\\;" and not quoted else word, quoted))
    return [_command(unit, words, variables) for words in commands if words]


def _command(unit: Unit, words: list[tuple[str, bool]], variables: Mapping[str, str]) -> ServiceCommand:
    first = words[0][0]
    prefix = PREFIX.match(first)
    assert prefix is not None
    for sign in prefix[0]:
        if sign in NOT_CARRIED:
            raise CommandRefused(f"{prefix[0]} before the program: {NOT_CARRIED[sign]}")
    program = unit.resolve(first[prefix.end() :])
    if not program or "$" in program:
        raise CommandRefused(f"{first!r:.60} is no program")
    found, left = [program], MOST_CHARACTERS
    for word, _ in words[1:]:
        resolved = unit.resolve(word)
        put_in = (variables.get(one[1] or one[2] or "", "") for one in VARIABLE.finditer(resolved))
        left -= len(resolved) + sum(map(len, put_in))
        if left < 0:
            raise CommandRefused(f"a command of more than {MOST_CHARACTERS:,} characters")
        found.extend([resolved] if ":" in prefix[0] else _expand(resolved, variables))
    return ServiceCommand(tuple(found), "-" in prefix[0])


def _expand(word: str, variables: Mapping[str, str]) -> list[str]:
    """Return the words that a word becomes: `$NAME` alone may be several or none."""
    if match := WHOLE_VARIABLE.fullmatch(word):
        return [one for one, _ in split_quoted(_variable(match[1], variables))]

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return match[0] if match[1] is None else _variable(match[1], variables)

    return [VARIABLE.sub(replace, word)]


def _variable(name: str, variables: Mapping[str, str]) -> str:
    if name not in variables:
        raise CommandRefused(f"${name} is no variable of Environment=")
    return variables[name]


def split_quoted(text: str) -> list[tuple[str, bool]]:
    """Split a text into words, each with whether it had quotes. Raises CommandRefused for a quote without an end."""
    words: list[tuple[str, bool]] = []
    letters: list[str] = []
    quote, begun, quoted, at = "", False, False, 0
    while at < len(text):
        char, at = text[at], at + 1
        if char == "\\" and at < len(text):
            decoded, length = _escape(text[at:], inside=begun)
            letters.append(decoded)
            begun, at = True, at + length
        elif quote and char == quote:
            quote = ""
        elif not quote and char in "\"'":
            quote, begun, quoted = char, True, True
        elif not quote and char in " \t\n":
            if begun:
                words.append(("".join(letters), quoted))
            letters, begun, quoted = [], False, False
        else:
            letters.append(char)
            begun = True
    if quote:
        raise CommandRefused(f"{text!r:.60} has a quote without an end")
    return [*words, ("".join(letters), quoted)] if begun else words


def _escape(text: str, *, inside: bool) -> tuple[str, int]:
    """Return the character that an escape stands for, and how long the escape is after its backslash."""
    if text[0] == ";" and not inside:
        return "\\;", 1  # told apart from a lone `;`
    if match := CODED.match(text):
        code = int(match[2], 8) if match[2] else int(match[1] or match[3] or match[4], 16)
        return chr(min(code, 0x10FFFF)), match.end()
    if text[0] in ESCAPES:
        return ESCAPES[text[0]], 1
    return f"\\{text[0]}", 1


def parse_environment(unit: Unit) -> dict[str, str]:
    """Return the variables of Environment=. Raises CommandRefused, and UnresolvedSpecifier."""
    found: dict[str, str] = {}
    for value in unit.values("Service", "Environment"):
        for word, _ in split_quoted(value):
            name, equals, text = unit.resolve(word).partition("=")
            if equals and re.fullmatch(r"[A-Za-z_]\w*", name):
                found[name] = text
    return found
