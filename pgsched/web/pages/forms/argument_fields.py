"""Fields of a form for the arguments of a task, by the JSON Schema that its newest release has registered.

Invariant: a field that is left empty is left out, so that the task's own default counts. What a form cannot show as a
simple field is a field for JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from pgsched.core.input_values import json_arguments
from pgsched.core.payload import json_value
from pgsched.core.wording import shorten
from pgsched.errors import InputError

PREFIX = "arg."  # before a field's name, so that no argument is taken for another field of the form
MOST_FIELDS = 100  # a task with more arguments gets JSON
MORE = "more arguments"  # the field for arguments that the schema allows but does not name
SIMPLE = {"string": "text", "integer": "whole", "number": "number", "boolean": "choice"}
FORMATS = {"date": "date", "date-time": "2031-05-01T02:00:00Z", "time": "02:00:00", "duration": "PT90S"}


@dataclass(frozen=True, slots=True)
class ArgumentField:
    """One argument as a field of a form.

    `kind`: text, whole, number, choice, date or json.
    `hint`: what to enter, and the default.
    `choices`: JSON texts to choose from, for kind choice.
    `required`: the task has no default for it.
    `nullable`: null is a value of it.
    """

    name: str
    kind: str
    hint: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False
    nullable: bool = False

    @property
    def key(self) -> str:
        """Return the field's name in the form."""
        return PREFIX + self.name

    def text_of(self, value: Any) -> str:
        """Return a value as the field shows it. Null is `null`, but empty where `null` would be text."""
        if self.kind in ("text", "date") and (value is None or isinstance(value, str)):
            return value or ""
        return json.dumps(value, ensure_ascii=False, default=json_value)

    def can_show(self, value: Any) -> bool:
        """Check whether a value comes back unchanged from the field in a browser, or is refused there."""
        text = self.text_of(value)
        if self.kind == "choice":
            return text in self.choices
        if self.kind == "date" and text and not is_date(text):  # browsers leave it empty
            return False
        if "\r" in text or text.startswith("\n"):  # browsers make CRLF of all ends of lines, and drop the first
            return False
        try:
            return read_arguments([self], {self.key: text}) == {self.name: value}
        except InputError:
            return True

    def value_of(self, text: str) -> Any:
        """Return the value that a text stands for. Raises InputError."""
        if self.kind in ("text", "date"):
            return text
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        if value is None and self.nullable:
            return None
        whole = isinstance(value, int) and not isinstance(value, bool)
        if (self.kind == "whole" and not whole) or (self.kind == "number" and not (whole or isinstance(value, float))):
            raise self.problem(text, "a whole number" if self.kind == "whole" else "a number")
        if self.kind == "choice" and text not in self.choices:
            raise self.problem(text, f"one of {', '.join(self.choices)}")
        return json_arguments(text) if self.kind == "json" and value != "null" and value is not None else value

    def problem(self, text: str, expected: str) -> InputError:
        """Return the error for a text that does not fit."""
        return InputError(f'args: {self.name}: "{text[:100]}" is not {expected}', f"args.{self.name}")


def argument_fields(schema: Any) -> list[ArgumentField] | None:
    """Return the fields for the arguments of a task; None where they can only be given as JSON."""
    if not isinstance(schema, dict) or schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        return None
    if len(schema["properties"]) > MOST_FIELDS:
        return None
    required = schema["required"] if isinstance(schema.get("required"), list) else []
    found = [field_of(name, part, schema, name in required) for name, part in schema["properties"].items()]
    found.sort(key=lambda field: not field.required)  # jsonb has lost the order in which the task has them
    if schema.get("additionalProperties", True) is not False:
        found.append(ArgumentField(MORE, "json", "JSON: an object of arguments by name"))
    return found


def field_of(name: str, part: Any, root: Mapping[str, Any], required: bool) -> ArgumentField:
    """Return the field for one argument. `root`: the whole schema, for what `part` refers to."""
    given = part if isinstance(part, dict) else {}
    default = shorten(f"default: {json.dumps(given['default'], ensure_ascii=False)}", 100) if "default" in given else ""
    simple, nullable = without_null(resolve(given, root), root)
    kind, hint = "json", "JSON"
    choices: tuple[str, ...] = ()
    if isinstance(values := simple.get("enum", [simple["const"]] if "const" in simple else None), list):
        kind, choices, hint = "choice", tuple(json.dumps(one, ensure_ascii=False) for one in values), ""
    elif (name_of_type := str(simple.get("type"))) in SIMPLE and "anyOf" not in simple:
        kind, hint = SIMPLE[name_of_type], FORMATS.get(str(simple.get("format")), "")
        if name_of_type == "boolean":
            choices = ("true", "false")
        if hint == "date":
            kind, hint = "date", ""
    if nullable and kind == "choice":
        choices = (*choices, "null")
    return ArgumentField(name, kind, ", ".join(filter(None, (hint, default))), choices, required, nullable)


def resolve(part: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema that a `$ref` to a definition stands for, or the schema itself."""
    found = part
    for _ in range(10):  # a definition may refer to another one
        reference = found.get("$ref") if isinstance(found, dict) else None
        if not isinstance(reference, str):
            break
        found = (root.get("$defs") or {}).get(reference.removeprefix("#/$defs/"), {})
    return found if isinstance(found, dict) else {}


def without_null(part: dict[str, Any], root: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the schema without the alternative null, and whether it has that alternative."""
    if isinstance(types := part.get("type"), list) and "null" in types:
        others = [one for one in types if one != "null"]
        return part | {"type": others[0] if len(others) == 1 else others}, True
    if isinstance(alternatives := part.get("anyOf"), list):
        others = [resolve(one, root) for one in alternatives if one != {"type": "null"}]
        if len(others) < len(alternatives):
            return (others[0] if len(others) == 1 else {"anyOf": others}), True
        enums = [one for one in alternatives if isinstance(one, dict) and isinstance(one.get("enum"), list)]
        if len(enums) == len(alternatives):
            return {"enum": [value for one in enums for value in one["enum"]]}, False
    return part, False


def texts_of_arguments(fields: list[ArgumentField], args: Any) -> dict[str, str]:
    """Return the texts of the fields for these arguments."""
    known = args if isinstance(args, dict) else {}
    texts = {field.key: field.text_of(known[field.name]) if field.name in known else "" for field in fields}
    extra = {name: value for name, value in known.items() if PREFIX + name not in texts}
    if extra and PREFIX + MORE in texts:
        texts[PREFIX + MORE] = json.dumps(extra, ensure_ascii=False, default=json_value)
    return texts


def can_show_arguments(fields: list[ArgumentField], args: Mapping[str, Any]) -> bool:
    """Check whether a form with these fields leaves these arguments as they are, if nobody changes them."""
    known = {field.name: field for field in fields if field.name != MORE}
    others = args.keys() - known.keys()
    return (not others or len(known) < len(fields)) and all(
        known[name].can_show(value) for name, value in args.items() if name in known
    )


def is_date(text: str) -> bool:
    """Check whether the text is a date as fields of browsers have it: 2031-05-01."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def read_arguments(fields: list[ArgumentField], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments that the texts of the fields give. Raises InputError, which names the argument."""
    args: dict[str, Any] = {}
    for field in fields:
        text = texts.get(field.key, "")
        text = text if field.kind == "text" else text.strip()
        if field.name == MORE and text:
            more = field.value_of(text)
            if not isinstance(more, dict):
                raise field.problem(text, "a JSON object")
            args |= more
        elif text:
            args[field.name] = field.value_of(text)
        elif field.required:
            if field.nullable:
                args[field.name] = None
            elif field.kind != "text":
                raise InputError(f"args: {field.name}: is missing", f"args.{field.name}")
            else:
                args[field.name] = ""
    return args
