"""The login form names the credentials that it accepts."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from pgsched.web.security.login import render_form
from pgsched.web.security.secrets import Password, new_session
from pgsched.web.security.visitors import Visitor
from pgsched.web.settings import Settings

TOKEN = "0123456789abcdef"
PASSWORD = Password(2**14, 8, 1, b"salt", b"0123456789abcdef")


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"token": TOKEN}, "Token"),
        ({"reader_token": TOKEN}, "Token"),
        ({"password": PASSWORD}, "Password"),
        ({"password": PASSWORD, "token": TOKEN}, "Token or password"),
        ({"password": PASSWORD, "reader_token": TOKEN}, "Token or password"),
        ({"password": PASSWORD, "named_tokens": (("ann", TOKEN),)}, "Token or password"),
    ],
)
def test_the_label_names_the_accepted_credentials(settings: dict[str, Any], label: str) -> None:
    app = Starlette()
    app.state.settings = Settings("dbname=none", **settings)
    scope = {"type": "http", "method": "GET", "path": "/login", "headers": [], "query_string": b"", "app": app,
             "state": {"visitor": Visitor("none", "", new_session(), ""), "form": {}}}  # fmt: skip
    assert f"<label>{label}<input" in bytes(render_form(Request(scope), 200).body).decode()
