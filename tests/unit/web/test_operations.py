"""Each operation of the JSON API says for itself who may, and what it takes of the request."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from pgsched.errors import NotPermitted
from pgsched.web.api.operation_table import OPERATIONS, REQUEST_VALUES, Operation, call_operation, permit
from pgsched.web.security.secrets import Role, new_session
from pgsched.web.security.visitors import Visitor


def visitor(role: Role) -> Visitor:
    return Visitor(role, "", new_session(), "")


def name(operation: Operation) -> str:
    return f"{operation.method} {operation.path}"


@pytest.mark.parametrize("operation", OPERATIONS, ids=name)
def test_what_changes_something_is_for_those_who_may_write(operation: Operation) -> None:
    """The guard in front goes by the method; the table must say the same, and refuses by itself."""
    assert operation.permission == ("read" if operation.method == "GET" else "write")
    permit(operation, visitor("write"))
    if operation.permission == "read":
        permit(operation, visitor("read"))
    else:
        with pytest.raises(NotPermitted, match="you may look here but not change anything"):
            permit(operation, visitor("read"))
    with pytest.raises(NotPermitted):
        permit(operation, visitor("none"))


def test_a_reader_is_refused_before_the_body_is_read() -> None:
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b"",
             "state": {"visitor": visitor("read")}}  # fmt: skip
    changes = [one for one in OPERATIONS if one.permission == "write"]
    assert len(changes) > 15
    assert {call_operation(Request(scope), one).status_code for one in changes} == {403}


def test_what_operations_need_of_the_request_is_known() -> None:
    assert {one for operation in OPERATIONS for one in operation.needs} == REQUEST_VALUES.keys()


def test_no_operation_has_a_parameter_that_the_request_gives() -> None:
    """A body could otherwise name the user in whose name a change is written down."""
    for operation in OPERATIONS:
        given = {*operation.query, *(operation.body or ()), *operation.parameters}
        assert not given & REQUEST_VALUES.keys(), name(operation)
