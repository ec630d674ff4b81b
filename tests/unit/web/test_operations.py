"""Each operation of the JSON API declares which roles may call it, and what it takes from the request."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from pgsched.errors import NotPermitted
from pgsched.web.api.calling import REQUEST_VALUES, call_operation, permit
from pgsched.web.api.operation_table import OPERATIONS, Operation
from pgsched.web.security.secrets import Role, new_session
from pgsched.web.security.visitors import Visitor


def visitor(role: Role) -> Visitor:
    return Visitor(role, "", new_session(), "")


def name(operation: Operation) -> str:
    return f"{operation.method} {operation.path}"


@pytest.mark.parametrize("operation", OPERATIONS, ids=name)
def test_operations_that_change_something_need_permission_to_write(operation: Operation) -> None:
    """The earlier check of a request goes by its method. The table must agree with it, and refuses by itself."""
    assert operation.permission == ("read" if operation.method == "GET" else "write")
    permit(operation, visitor("write"))
    if operation.permission == "read":
        permit(operation, visitor("read"))
    else:
        with pytest.raises(NotPermitted, match="you may look here but not change anything"):
            permit(operation, visitor("read"))
    with pytest.raises(NotPermitted):
        permit(operation, visitor("none"))


def test_a_producer_makes_runs_and_reads_them_and_nothing_else() -> None:
    for operation in OPERATIONS:
        if name(operation) in ("POST /runs", "GET /runs/{id}", "GET /tasks/{name}"):
            permit(operation, visitor("produce"))
        else:
            with pytest.raises(NotPermitted, match="make runs here, read them, read one task, and nothing else"):
                permit(operation, visitor("produce"))


def test_a_reader_is_refused_before_the_body_is_read() -> None:
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b"",
             "state": {"visitor": visitor("read")}}  # fmt: skip
    changes = [one for one in OPERATIONS if one.permission == "write"]
    assert len(changes) > 15
    assert {call_operation(Request(scope), one).status_code for one in changes} == {403}


def test_every_value_that_operations_need_from_the_request_is_known() -> None:
    assert {one for operation in OPERATIONS for one in operation.needs} == REQUEST_VALUES.keys()


def test_no_parameter_of_an_operation_is_named_like_a_request_value() -> None:
    """Otherwise a body could name the user under whose name a change is recorded."""
    for operation in OPERATIONS:
        given = {*operation.query, *(operation.body or ()), *operation.parameters}
        headers = {header.lower().replace("-", "_") for header in operation.headers}
        assert not given & {*REQUEST_VALUES, *headers}, name(operation)
