"""Sinks of apprise: what they send, what they refuse, and that nothing of their URL is told."""

from __future__ import annotations

import json

import pytest

from pgsched.config import AlertSettings, find_alerts, find_named_sinks
from pgsched.errors import InputError
from pgsched.leader.alerting import apprise_sink
from pgsched.leader.alerting.sinks import AlertSink, NotDelivered, configured_sinks
from tests.support.http.answering import Server, answer, serving

ALERT = {
    "id": "pgsched-alert-x", "event": "opened", "kind": "failures", "job": "nightly", "run_id": 17,
    "details": "broke", "recovery": None, "opened_at": "2026-05-01T02:00:07+00:00", "closed_at": None,
    "text": "[alert] job nightly: failures: broke",
}  # fmt: skip


def sink_of(url: str, name: str = "mail") -> AlertSink:
    return configured_sinks(AlertSettings(named={name: url}))[-1]


def to(server: Server) -> AlertSink:
    """Return a sink of apprise that sends JSON to a server on loopback."""
    return sink_of(f"json://127.0.0.1:{server.port}/hook")


def test_an_alert_is_sent_with_a_subject_and_a_text() -> None:
    with serving() as server:
        server.answers["/hook"] = answer()
        sink = to(server)
        sink.deliver(ALERT)
        sink.deliver(ALERT | {"event": "closed", "closed_at": "2026-05-01T03:00:00+00:00"})
        first, second = (json.loads(seen.body) for seen in server.seen)
    assert sink.name == "apprise mail"
    assert (first["title"], first["type"]) == ("pgsched: nightly: failures", "failure")
    assert first["message"].splitlines() == [
        "[alert] job nightly: failures: broke", "", "since 2026-05-01T02:00:07+00:00", "pgsched run show 17",
    ]  # fmt: skip
    assert (second["title"], second["type"]) == ("pgsched: nightly: failures is over", "success")
    assert "until 2026-05-01T03:00:00+00:00" in second["message"]


def test_what_the_service_refuses_is_not_delivered() -> None:
    with serving() as server:
        server.answers["/hook"] = answer("500 Internal Server Error")
        with pytest.raises(NotDelivered, match="the service did not take it"):
            to(server).deliver(ALERT)


@pytest.mark.parametrize("text", ["json://evil.example/", "\\n{{7*7}}\\u0041", "file:///etc/passwd", "<b>x</b>"])
def test_text_of_the_database_is_only_text(text: str) -> None:
    with serving() as server:
        server.answers["/hook"] = answer()
        to(server).deliver(ALERT | {"text": text, "job": text})
        assert json.loads(server.seen[0].body)["message"].splitlines()[0] == text
        assert server.connections == 1


def test_long_text_is_cut() -> None:
    assert len(apprise_sink.body_of(ALERT | {"text": "x" * 100_000})) == apprise_sink.BODY_CHARACTERS
    assert len(apprise_sink.title_of(ALERT | {"job": "x" * 1000})) == apprise_sink.TITLE_CHARACTERS


@pytest.mark.parametrize("url", ["nowhere://secret@example", "not a url", "mailto://"])
def test_a_url_that_apprise_does_not_know_is_refused_without_being_told(url: str) -> None:
    with pytest.raises(InputError) as refused:
        sink_of(url)
    assert str(refused.value) == "alert-apprise: mail: apprise cannot use this URL"


def test_targets_come_from_the_environment_and_from_flags() -> None:
    env = {"PGSCHED_ALERT_APPRISE_MAIL": "mailto://a", "PGSCHED_ALERT_APPRISE_OPS": "slack://b"}
    assert find_named_sinks(["ops=discord://c", "more-1=json://d"], env) == {
        "mail": "mailto://a", "ops": "discord://c", "more-1": "json://d",
    }  # fmt: skip
    assert find_alerts(env).named == {"mail": "mailto://a", "ops": "slack://b"}
    assert "mailto" not in repr(find_alerts(env))


@pytest.mark.parametrize("flag", ["mail", "mail=", "=json://a", "json://a?b=c", "Mail=json://a", "a b=json://a"])
def test_a_wrong_flag_is_refused_without_being_told(flag: str) -> None:
    with pytest.raises(InputError) as refused:
        find_named_sinks([flag], {})
    assert "json" not in str(refused.value)


def test_without_the_package_the_process_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(InputError, match=r"pip install 'pgsched\[apprise\]'"):
        sink_of("json://localhost")
