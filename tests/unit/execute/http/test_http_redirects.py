"""HTTP jobs follow redirects only if the job says so, and check each target like the job's own URL."""

from __future__ import annotations

import pytest

from pgsched.core.model import Result
from pgsched.execute.http.redirect import follow_redirect
from pgsched.execute.http.request import read_request
from tests.support.executing import claim
from tests.support.http.answering import Server, answer, serving
from tests.support.http.asking_http import http


def test_a_redirect_is_not_followed_unless_the_job_says_so(server: Server) -> None:
    server.answers |= {"/old": answer("302 x", location="/")}
    outcome = http(server.url("/old"))
    assert outcome.error == "HTTP 302 Found" and len(server.seen) == 1
    followed = http(server.url("/old"), {"follow_redirects": True})
    assert followed.result is Result.SUCCEEDED and followed.value["body"] == "fine"


def test_more_than_five_redirects_are_refused(server: Server) -> None:
    server.answers["/"] = answer("307 x", location="/")
    outcome = http(server.url(), {"follow_redirects": True})
    assert (outcome.error, outcome.retry) == ("HTTP: more than 5 redirects", False)
    assert len(server.seen) == 6


def test_a_redirect_to_a_private_address_is_refused(server: Server) -> None:
    with serving(address="127.0.0.2") as private:
        private.answers["/"] = answer(body="secret")
        server.answers["/"] = answer("302 x", location=private.url(host="127.0.0.2"))
        outcome = http(server.url(), {"follow_redirects": True}, allow=["127.0.0.1"])
        assert (outcome.result, outcome.retry) == (Result.FAILED, False)
        assert outcome.error == "HTTP: 127.0.0.2 is not a public address, and this worker has no --http-allow for it"
        assert private.connections == 0
        assert http(server.url(), {"follow_redirects": True}).value["body"] == "secret", "where it is allowed"


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "ftp://a.org/", "http://u:p@127.0.0.1/", "http://[", "http://a b/", "http://%61/"],
)
def test_a_redirect_to_an_invalid_url_is_refused(server: Server, location: str) -> None:
    server.answers["/"] = answer("302 x", location=location)
    outcome = http(server.url(), {"follow_redirects": True})
    assert (outcome.result, outcome.retry) == (Result.FAILED, False)
    assert outcome.error is not None and outcome.error.startswith("HTTP: redirect to ")


def test_the_jobs_own_headers_are_not_sent_to_another_origin(server: Server) -> None:
    with serving() as other:
        other.answers["/"] = answer()
        server.answers |= {"/out": answer("307 x", location=other.url()), "/in": answer("307 x", location="/")}
        args = {"follow_redirects": True, "headers": {"Authorization": "Bearer t", "X-Key": "k"}, "json": [1]}
        http(server.url("/out"), args)
        http(server.url("/in"), args)
        (left,) = other.seen
        assert left.headers["host"] == f"127.0.0.1:{other.port}"
    stayed = server.seen[-1]
    assert "authorization" not in left.headers and "x-key" not in left.headers
    assert (left.method, left.body, left.headers["idempotency-key"]) == ("POST", b"[1]", "7")
    assert (stayed.headers["authorization"], stayed.headers["x-key"]) == ("Bearer t", "k")


def test_another_origin_gets_the_default_headers_instead_of_the_jobs_own(server: Server) -> None:
    with serving() as other:
        other.answers["/"] = answer()
        server.answers |= {"/out": answer("307 x", location=other.url()), "/in": answer("307 x", location="/")}
        own = {"User-Agent": "Shop/1", "accept": "text/csv"}
        for path in ("/out", "/in"):
            http(server.url(path), {"follow_redirects": True, "headers": own})
        (left,) = other.seen
    names = ("user-agent", "accept")
    assert [left.headers.get(name) for name in names] == ["pgsched", "*/*"]
    assert [server.seen[-1].headers.get(name) for name in names] == [*own.values()]


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [(301, "POST", "GET"), (302, "PUT", "GET"), (303, "DELETE", "GET"), (303, "HEAD", "HEAD"), (301, "PUT", "PUT"),
     (307, "POST", "POST"), (308, "POST", "POST")],
)  # fmt: skip
def test_a_redirect_may_turn_the_method_into_get(status: int, method: str, then: str) -> None:
    first = read_request(claim("http", "http://a.org/x", {"method": method, "body": "text"}))
    following = follow_redirect(first, status, "y")
    assert (following.url, following.method) == ("http://a.org/y", then)
    assert (following.content is None, "Content-Type" in following.headers) == (then != method, then == method)


def test_a_redirect_from_https_to_http_is_refused() -> None:
    with pytest.raises(Exception, match="from https to http"):
        follow_redirect(read_request(claim("http", "https://a.org/")), 302, "http://a.org/")
