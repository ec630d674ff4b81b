"""JSON of rows that Python cannot read becomes a text that says so, and only listed modules read JSON."""

from __future__ import annotations

import ast
import json

import pytest

from pgsched.db.connection.json_values import UnreadableJson, json_depth, program_value, read_json
from pgsched.errors import InputError
from tests.support.paths import of_the_package, parsed, relative

LONG = "1" * 5000
DEEP = "[" * 100_000 + "]" * 100_000  # Python 3.13 reads ten thousand levels
# Other modules that read JSON, and what they read: never a value of a row.
OTHERS = {
    "pgsched/chaos/checks/limits.py": "a ledger's lines",
    "pgsched/chaos/faults/leader.py": "what a command printed",
    "pgsched/chaos/history.py": "a log's lines",
    "pgsched/core/input_values.py": "an argument",
    "pgsched/cli/commands/coordination/key_output.py": "a string",
    "pgsched/cli/commands/coordination/keys.py": "what a person typed",
    "pgsched/client/application.py": "what was just encoded",
    "pgsched/client/call_arguments.py": "what was just encoded",
    "pgsched/core/payload.py": "what was just encoded",
    "pgsched/core/shadow/kubernetes.py": "a file",
    "pgsched/core/shadow/syslog.py": "a log's lines",
    "pgsched/importers/apscheduler/jobs.py": "a file",
    "pgsched/importers/celery/tables.py": "a text in a row of another product",
    "pgsched/services/importing/celery_process.py": "a message of ours",
    "pgsched/execute/http/response.py": "an answer",
    "pgsched/execute/outcomes.py": "what was just encoded",
    "pgsched/execute/process_pool/child_main.py": "a message of ours",
    "pgsched/execute/process_pool/child_process.py": "a message of ours",
    "pgsched/testing/key_texts.py": "what was just encoded",
    "pgsched/testing/keys.py": "what was just encoded",
    "pgsched/testing/running.py": "what was just encoded",
    "pgsched/testing/store.py": "what was just encoded",
    "pgsched/testing/wanted.py": "what was just encoded",
    "pgsched/web/api/calling.py": "a request",
    "pgsched/worker/supervision/supervisor_link.py": "a message of ours",
    "pgsched/web/pages/forms/argument_fields.py": "a request",
    "pgsched/web/pages/forms/job_form.py": "a request",
    "pgsched/web/security/secrets.py": "a file",
    "pgsched/worker/supervision/endpoint_proxy.py": "an answer",
}
OF_ROWS = {
    "pgsched/db/callers/loaders.py",
    "pgsched/db/connection/json_values.py",
    "pgsched/db/queries/runs/claim_rows.py",
}
READS = {"loads", "load", "set_json_loads", "raw_decode", "JSONDecoder"}


@pytest.mark.parametrize("text", [LONG, DEEP, f'{{"a": [{LONG}]}}', "NaN}"])
def test_json_that_cannot_be_read_becomes_a_text_that_says_so(text: str) -> None:
    found = read_json(text)
    assert isinstance(found, UnreadableJson) and found.startswith("(this JSON cannot be read: ")
    assert found.text == text and json.loads(json.dumps(found)) == found
    with pytest.raises(InputError, match="cannot read this JSON"):
        program_value(found)


def test_a_program_gets_json_that_is_only_too_deep_to_be_shown() -> None:
    deep = "[" * 201 + "]" * 201
    assert isinstance(read_json(deep.encode()), UnreadableJson)
    assert json.dumps(program_value(read_json(deep))) == deep


def test_brackets_in_strings_do_not_count_as_depth() -> None:
    text = json.dumps(['[{"' * 500, "\\[" * 300])
    assert (json_depth(text), read_json(text)) == (1, json.loads(text))


def test_only_known_modules_read_json() -> None:
    found = set()
    for path, tree in parsed(of_the_package(), about="|".join(READS)):
        for node in ast.walk(tree):
            call = node.func if isinstance(node, ast.Call) else None
            named = call.attr if isinstance(call, ast.Attribute) else call.id if isinstance(call, ast.Name) else ""
            of_json = not isinstance(call, ast.Attribute) or getattr(call.value, "id", "") in ("json", "encoding")
            if named in READS and of_json and (named != "load" or isinstance(call, ast.Attribute)):
                found.add(relative(path))
    assert found == OF_ROWS | OTHERS.keys()
