"""Read a pickle as plain data. Nothing that it names is imported, and nothing is called.

Invariant: what a pickle makes consists of Python's plain values and of the three classes below.

Python's own unpickler imports and calls whatever the pickle says, and takes the memory that it asks for. This reader
follows the opcodes itself (https://docs.python.org/3/library/pickletools.html). A class or function is a name. Calling
a name of the closed list gives `Known`, with the arguments; any other call gives `Foreign`, which only has a name.

Bounded are the bytes, the opcodes and the keys of dictionaries. A pickle of a hundred bytes can still hold a list that
contains itself, or one of 2^30 items that are all the same. So whoever copies what was read counts (arguments.py).
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pgsched.errors import InputError

MOST_BYTES = 1024 * 1024
MOST_OPCODES = 200_000
SMALL_KEY = 2**60  # the hashes of larger numbers may collide by intent

TRIGGERS = "apscheduler.triggers"
# The classes whose objects are read.
CLASSES = frozenset(
    {
        *(f"{TRIGGERS}.{name}" for name in (
            "cron.CronTrigger", "interval.IntervalTrigger", "date.DateTrigger", "combining.AndTrigger",
            "combining.OrTrigger", "calendarinterval.CalendarIntervalTrigger",
        )),
        *(f"{TRIGGERS}.cron.fields.{name}" for name in (
            "BaseField", "WeekField", "DayOfMonthField", "DayOfWeekField", "MonthField",
        )),
        *(f"{TRIGGERS}.cron.expressions.{name}" for name in (
            "AllExpression", "RangeExpression", "MonthRangeExpression", "WeekdayRangeExpression",
            "WeekdayPositionExpression", "LastDayOfMonthExpression",
        )),
    }
)  # fmt: skip
# The functions whose calls are read. None of them is called here.
FUNCTIONS = frozenset(
    {
        "datetime.datetime", "datetime.date", "datetime.time", "datetime.timedelta", "datetime.timezone",
        "zoneinfo.ZoneInfo", "zoneinfo.ZoneInfo._unpickle",
        "pytz._UTC", "pytz._p", "pytz.FixedOffset",
        "_codecs.encode",
    }
)  # fmt: skip
OLD_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}  # of Python 2, which protocols 0 to 2 name


class PickleRefused(InputError):
    """A pickle is damaged, too large, or uses what no job store has."""


@dataclass(frozen=True, slots=True)
class Named:
    """A class or function that a pickle names: `datetime.timedelta`."""

    name: str


@dataclass(eq=False, slots=True)
class Known:
    """An object of a class of the closed list, or the result of one of its functions, as data."""

    name: str
    args: tuple[Any, ...] = ()
    state: Any = None


@dataclass(frozen=True, slots=True)
class Foreign:
    """An object of which only is known what made it."""

    name: str


def read_pickle(data: bytes) -> Any:
    """Return what a pickle makes. Raises PickleRefused."""
    if len(data) > MOST_BYTES:
        raise PickleRefused(f"the pickle has {len(data):,} bytes; at most {MOST_BYTES:,} are read")
    machine = _Machine()
    count = 0
    try:
        for opcode, argument, _ in pickletools.genops(data):
            count += 1
            if count > MOST_OPCODES:
                raise PickleRefused(f"the pickle has more than {MOST_OPCODES:,} opcodes")
            machine.step(opcode.name, argument)
        return machine.result()
    except PickleRefused:
        raise
    except (ValueError, IndexError, KeyError, TypeError, RecursionError) as error:
        raise PickleRefused(f"the pickle is damaged: {type(error).__name__} at opcode {count}") from None


@dataclass(slots=True)
class _Machine:
    """The stack, the marks in it, and the memo of a pickle that is read."""

    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def step(self, name: str, argument: Any) -> None:
        """Follow one opcode."""
        if name in PUSHED:
            self.stack.append(argument)
        elif name in CONSTANTS:
            self.stack.append(CONSTANTS[name])
        elif name in EMPTY:
            self.stack.append(EMPTY[name]())
        elif name in IGNORED:
            return
        elif name in STEPS:
            STEPS[name](self, argument)
        else:
            raise PickleRefused(f"the pickle has the opcode {name}, which no job store has")

    def result(self) -> Any:
        """Return the one value that is left at the end."""
        (value,) = self.stack
        return value

    def pop(self) -> Any:
        """Take the top of the stack, which lies above the last mark."""
        if self.marks and len(self.stack) <= self.marks[-1]:
            raise IndexError("mark")
        return self.stack.pop()

    def pop_marked(self) -> list[Any]:
        """Take what lies above the last mark."""
        at = self.marks.pop()
        values = self.stack[at:]
        del self.stack[at:]
        return values


def _pop_tuple(count: int) -> Callable[[_Machine, Any], None]:
    def make(machine: _Machine, _: Any) -> None:
        values = [machine.pop() for _ in range(count)]
        machine.stack.append(tuple(reversed(values)))

    return make


def _extend(machine: _Machine, values: list[Any]) -> None:
    """Add items to the list or set on top; what a foreign object gets is dropped."""
    target = machine.stack[-1]
    if isinstance(target, list):
        target.extend(values)
    elif not isinstance(target, Foreign):
        raise TypeError("items")


def _set_items(machine: _Machine, values: list[Any]) -> None:
    """Add keys and values to the dictionary on top; what a foreign object gets is dropped."""
    target = machine.stack[-1]
    if isinstance(target, dict):
        target.update(_pairs(values))
    elif not isinstance(target, Foreign):
        raise TypeError("keys")


def _pairs(values: list[Any]) -> dict[Any, Any]:
    """Return keys and values, which alternate, as a dictionary. Raises PickleRefused for other keys than text."""
    keys = values[::2]
    for key in keys:
        if not (isinstance(key, str | bytes | None) or (isinstance(key, int) and abs(key) < SMALL_KEY)):
            raise PickleRefused(f"the pickle has a dictionary with a key that is no text: {type(key).__name__}")
    return dict(zip(keys, values[1::2], strict=True))


def _find(machine: _Machine, module: Any, name: Any) -> None:
    if not (isinstance(module, str) and isinstance(name, str)):
        raise TypeError("name")
    machine.stack.append(Named(f"{OLD_MODULES.get(module, module)}.{name}"))


def _stack_global(machine: _Machine, _: Any) -> None:
    name, module = machine.pop(), machine.pop()
    _find(machine, module, name)


def _reduce(machine: _Machine, _: Any) -> None:
    """Note a call. Nothing is called."""
    arguments, function = machine.pop(), machine.pop()
    if not isinstance(arguments, tuple):
        raise TypeError("arguments")
    machine.stack.append(note_call(function, arguments))


def note_call(function: Any, arguments: tuple[Any, ...]) -> Any:
    """Return what stands for the result of a call."""
    if not isinstance(function, Named):
        return function if isinstance(function, Foreign) else Foreign(f"a call of {type(function).__name__}")
    match function.name, arguments:
        case "builtins.getattr", (Named(name=owner), str(attribute)) if f"{owner}.{attribute}" in FUNCTIONS:
            return Named(f"{owner}.{attribute}")
        case "copyreg._reconstructor" | "copyreg.__newobj__", (Named() as kind, *_):
            return note_object(kind, ())
        case "builtins.set" | "builtins.frozenset", (list(items),):
            return items
        case name, _ if name in FUNCTIONS:
            return Known(name, arguments)
    return Foreign(function.name)


def note_object(kind: Any, arguments: Any) -> Any:
    """Return what stands for a new object."""
    if not isinstance(kind, Named):
        return kind if isinstance(kind, Foreign) else Foreign(f"an object of {type(kind).__name__}")
    if kind.name in FUNCTIONS and isinstance(arguments, tuple):
        return Known(kind.name, arguments)
    return Known(kind.name) if kind.name in CLASSES else Foreign(kind.name)


def _new_object(machine: _Machine, _: Any) -> None:
    arguments, kind = machine.pop(), machine.pop()
    machine.stack.append(note_object(kind, arguments))


def _new_object_by_names(machine: _Machine, _: Any) -> None:
    machine.pop()
    _new_object(machine, None)


def _build(machine: _Machine, _: Any) -> None:
    state = machine.pop()
    target = machine.stack[-1]
    if isinstance(target, Known):
        target.state = state
    elif not isinstance(target, Foreign):
        raise TypeError("state")


def _drop(machine: _Machine, _: Any) -> None:
    machine.pop()


def _drop_marked(machine: _Machine, _: Any) -> None:
    machine.pop_marked()


def _put(machine: _Machine, index: int) -> None:
    """Note the top of the stack. Raises PickleRefused for a number that no pickler gives: their hashes may collide."""
    if index > MOST_OPCODES:
        raise PickleRefused("the pickle has a number in its memo that is too large")
    machine.memo[index] = machine.stack[-1]


PUSHED = frozenset(
    {
        "INT", "LONG", "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
        "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
        "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
    }
)  # fmt: skip
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": list}
IGNORED = frozenset({"PROTO", "FRAME", "STOP"})
STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": lambda m, _: m.marks.append(len(m.stack)),
    "POP": _drop,
    "POP_MARK": _drop_marked,
    "DUP": lambda m, _: m.stack.append(m.stack[-1]),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.pop_marked())),
    "TUPLE1": _pop_tuple(1),
    "TUPLE2": _pop_tuple(2),
    "TUPLE3": _pop_tuple(3),
    "LIST": lambda m, _: m.stack.append(m.pop_marked()),
    "FROZENSET": lambda m, _: m.stack.append(m.pop_marked()),
    "DICT": lambda m, _: m.stack.append(_pairs(m.pop_marked())),
    "APPEND": lambda m, _: _extend(m, [m.pop()]),
    "APPENDS": lambda m, _: _extend(m, m.pop_marked()),
    "ADDITEMS": lambda m, _: _extend(m, m.pop_marked()),
    "SETITEM": lambda m, _: _set_items(m, [m.pop(), m.pop()][::-1]),
    "SETITEMS": lambda m, _: _set_items(m, m.pop_marked()),
    "PUT": _put,
    "BINPUT": _put,
    "LONG_BINPUT": _put,
    "MEMOIZE": lambda m, _: _put(m, len(m.memo)),
    "GET": lambda m, index: m.stack.append(m.memo[index]),
    "BINGET": lambda m, index: m.stack.append(m.memo[index]),
    "LONG_BINGET": lambda m, index: m.stack.append(m.memo[index]),
    "GLOBAL": lambda m, names: _find(m, *names.split(" ", 1)),
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _reduce,
    "NEWOBJ": _new_object,
    "NEWOBJ_EX": _new_object_by_names,
    "BUILD": _build,
}


def describe_kind(value: Any) -> str:
    """Return the name of the class of a value, for a message; at most 100 characters."""
    name = value.name if isinstance(value, Named | Known | Foreign) else type(value).__name__
    return f"{name[:100]}"
