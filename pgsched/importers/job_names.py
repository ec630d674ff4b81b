"""Names for jobs whose source has none: from the program that a command line runs.

Invariant: two jobs of one import have different names, and the same source gives the same names again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from pgsched.core.text import replace_unstorable

LONGEST = 60
LONGEST_NAME, LONGEST_QUEUE = 190, 100
LONGEST_DESCRIPTION = 10_000
NOT_IN_A_NAME = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# What a shell line consists of: a redirection, a word, or the end of a simple command.
TOKEN = re.compile(
    r"""(?P<redirection>[0-9]*[<>]+(?:&[0-9-]+)?)
    | (?P<word>(?:[^\s'"\\;|&()<>]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+)
    | (?P<end>&&|\|\||[;|&()\n])""",
    re.VERBOSE,
)
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
# Commands that only prepare for the one that counts.
PREPARING = {"[", "[[", "test", "cd", "export", ".", "source", "sleep", "set", "umask", "ulimit", "fi", "true", ":",
             "exit", "echo", "done", "for", "mkdir"}  # fmt: skip
# Words of the shell before a command.
KEYWORDS = {"{", "}", "if", "then", "else", "elif", "while", "until", "do", "!", "time", "eval", "exec"}
# Programs that start another one, each with its options that take a value.
WRAPPERS = {"nice": ("-n",), "ionice": ("-c", "-n"), "timeout": ("-k", "-s"), "flock": ("-w", "-E"), "env": ("-u",),
            "sudo": ("-u", "-g"), "nohup": (), "chronic": (), "setsid": (), "command": (),
            "chrt": (), "runuser": ("-u",), "su": (), "xvfb-run": (), "systemd-cat": ("-t",), "cronic": (),
            "stdbuf": ()}  # fmt: skip
# Of these the first argument that is no option is no program either: a time, or the file of a lock.
WITH_AN_ARGUMENT = {"timeout", "flock", "chrt"}
INTERPRETERS = re.compile(r"(?:ba|da|k|z|a)?sh|python[\d.]*|perl[\d.]*|ruby[\d.]*|php[\d.]*|node|java|pwsh")
# Programs that leave another program running when they end: always (no options here), or with one of these options.
DETACHING: dict[str, set[str]] = {
    "setsid": set(), "disown": set(), "daemonize": set(), "start-stop-daemon": {"-b", "--background"},
    "screen": {"-d", "-dm", "-dmS", "-md", "-mdS"}, "tmux": {"-d"},
}  # fmt: skip
WAITING = {"setsid": {"-w", "--wait"}}
SCRIPT_ENDINGS = (".sh", ".py", ".pl", ".rb", ".php", ".js", ".jar", ".bash", ".cron", ".job")


class JobNames:
    """The names that one import has given."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}  # by name: the last number that was tried

    def take(self, wanted: str) -> str:
        """Return the name, with a number behind it if another job has it already."""
        wanted = clean_name(wanted, LONGEST_NAME)
        name, number = wanted, self._numbers.get(wanted, 1)
        while name in self._taken:
            number += 1
            name = f"{wanted}-{number}"
        self._numbers[wanted] = number
        self._taken.add(name)
        return name

    def take_first(self, *wanted: str) -> str:
        """Return the first of these names that is free; the last one with a number where none is."""
        free = (name for name in wanted if clean_name(name, LONGEST_NAME) not in self._taken)
        return self.take(next(free, wanted[-1]))


def clean_name(text: str, longest: int = LONGEST_QUEUE) -> str:
    """Return a text as a name that the database takes: without control characters, cut, and not empty."""
    return NOT_IN_A_NAME.sub("-", text).strip()[:longest].strip() or "unnamed"


def clean_text(text: str) -> str:
    """Return a description as the database takes it: without NUL and half characters, and cut."""
    return replace_unstorable(text)[:LONGEST_DESCRIPTION]


def name_of_command(command: str, otherwise: str) -> str:
    """Return a name for what a shell line runs: its first program that does more than prepare.

    `otherwise`: the name where none is found.
    """
    for words in _simple_commands(command[:2000]):
        if found := _program(words):
            return found
    return otherwise


def _simple_commands(command: str) -> Iterator[list[str]]:
    """Yield the words of each simple command of a shell line, without redirections and their files."""
    words: list[str] = []
    redirected = False
    for token in TOKEN.finditer(command):
        if token["end"] is not None:
            yield words
            words = []
        elif token["word"] is not None and not redirected:
            words.append(token["word"].strip("'\""))
        redirected = token["redirection"] is not None and "&" not in token["redirection"]
    yield words


def _program(words: list[str]) -> str | None:
    """Return the name of the program that some words start; None for one that only prepares."""
    while words:
        first, words = words[0], words[1:]
        base = PurePosixPath(first).name
        if first in KEYWORDS or ASSIGNMENT.match(first) or first.startswith(("$", "`")):
            continue
        if base in PREPARING:
            return None
        if base in WRAPPERS:
            words = _skip_options(words, WRAPPERS[base])
            words = words[1:] if base in WITH_AN_ARGUMENT else words
            continue
        if INTERPRETERS.fullmatch(base) and (script := _script(words)):
            return script
        return slug(base)
    return None


def _skip_options(words: list[str], with_value: Iterable[str]) -> list[str]:
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in with_value else words[1:]
    return words


def _script(words: list[str]) -> str | None:
    """Return the name of the script or module that an interpreter runs; None for a text after -c."""
    for at, word in enumerate(words):
        if word == "-m" and at + 1 < len(words):
            return slug(words[at + 1])
        if word in ("-c", "-e", "-r"):
            return name_of_command(words[at + 1], "") or None if word == "-c" and at + 1 < len(words) else None
        if not word.startswith("-"):
            return slug(PurePosixPath(word).name)
    return None


def left_running(command: str) -> str | None:
    """Return the sign or word by which a shell line leaves a process running when it ends; None where it leaves none.

    A lone `&` without a `wait` after it, or a program that starts another one and ends.
    """
    found: str | None = None
    words: list[str] = []
    for token in TOKEN.finditer(f"{command}\n"):
        if token["word"] is not None:
            words.append(token["word"])
        elif token["end"] is not None:
            around = command[max(token.start() - 1, 0) : token.start()], command[token.end() : token.end() + 1]
            alone = token["end"] == "&" and around[0] not in ("<", ">", "|") and around[1] != ">"  # bash: &>, >&, |&
            found = None if words[:1] == ["wait"] else _detaching(words) or ("&" if alone else found)
            words = []
    return found


def _detaching(words: list[str]) -> str | None:
    """Return the program among the words of a simple command that leaves another one running; None where none does."""
    names = [word.rpartition("/")[2] for word in words]
    options = {word for word in words if word.startswith("-")}
    for name, needed in DETACHING.items():
        if name in names and (not needed or options & needed) and not options & WAITING.get(name, set()):
            return name
    return "daemon" if names[:1] == ["daemon"] else None


def slug(text: str) -> str | None:
    """Return a text as a short name of letters, digits, `.`, `_`, `@` and `-`; None where nothing is left."""
    for ending in SCRIPT_ENDINGS:
        text = text.removesuffix(ending)
    kept = re.sub(r"[^A-Za-z0-9._@-]+", "-", text).strip("-.")[:LONGEST]
    return kept or None
