"""URLs and arguments that no HTTP job may have, and the message with which database and executor both refuse them."""

from __future__ import annotations

from typing import Any

URL = "task: a URL must "
WRONG_URLS = [
    ("ftp://example.org/", URL + "begin with http:// or https://"),
    ("file:///etc/passwd", URL + "begin with http:// or https://"),
    ("example.org/x", URL + "begin with http:// or https://"),
    ("http:/example.org", URL + "begin with http:// or https://"),
    ("http://a.org/x\r\nX-Evil: 1", URL + "not contain spaces or control characters"),
    ("http://a.org/a b", URL + "not contain spaces or control characters"),
    ("http://a.org/\x7f", URL + "not contain spaces or control characters"),
    (
        "http://user:secret@a.org/",
        URL + "not contain a user name or password; args.headers may hold Authorization",
    ),
    ("http://a.org\\@10.0.0.1/", URL + "not contain a user name or password; args.headers may hold Authorization"),
    ("http://", "task: the URL has no valid host"),
    ("http:///x", "task: the URL has no valid host"),
    ("http://:80/", "task: the URL has no valid host"),
    ("http://a.org:x/", "task: the URL has no valid host"),
    ("http://a.org:80:80/", "task: the URL has no valid host"),
    ("http://::1/", "task: the URL has no valid host"),
    ("http://[::1/", "task: the URL has no valid host"),
    ("http://a.org\\x/", "task: the URL has no valid host"),
    ("http://%61.org/", "task: the URL has no valid host"),
    ("http://a.org:0/", "task: port 0 is out of range 1-65535"),
    ("https://a.org:99999?x", "task: port 99999 is out of range 1-65535"),
    ("http://a.org/" + "x" * 8192, "task: 8205 characters, at most 8192 are allowed in a URL"),
]

METHOD = "args.method: expected a method such as POST"
PARAM = "args.params.a: expected text, a number, true or false, or an array of these"
ASCII = "args.headers.X-A: must be printable ASCII and not begin or end with a space"
WRONG_ARGS: list[tuple[Any, str]] = [
    ([1], "args: a http job takes a JSON object"),
    ({"methods": "GET"}, "args.methods: no such key; known are method, headers, params, json, body, expect,"
                         " connect_timeout_s, read_timeout_s, follow_redirects"),
    ({"method": 1}, METHOD),
    ({"method": ""}, METHOD),
    ({"method": "GET / HTTP/1.1\r\n"}, METHOD),
    ({"method": "connect"}, METHOD),
    ({"headers": ["X-A: 1"]}, "args.headers: expected an object of text"),
    ({"headers": {"X-A": 1}}, "args.headers.X-A: expected text"),
    ({"headers": {"X-A": "1\r\nX-Evil: 1"}}, ASCII),
    ({"headers": {"X-A": "1\n"}}, ASCII),
    ({"headers": {"X-A": "\u00e9"}}, ASCII),
    ({"headers": {"X-A": " 1"}}, ASCII),
    ({"headers": {"X-A": "x" * 8193}}, "args.headers.X-A: 8193 characters, at most 8192 are allowed"),
    ({"headers": {"X A": "1"}}, 'args.headers: "X A" is not the name of a header'),
    ({"headers": {"X-A\r\n": "1"}}, 'args.headers: "X-A\\r\\n" is not the name of a header'),
    ({"headers": {"": "1"}}, 'args.headers: "" is not the name of a header'),
    ({"headers": {"Host": "10.0.0.1"}}, "args.headers: Host is set by pgsched itself"),
    ({"headers": {"transfer-encoding": "chunked"}}, "args.headers: transfer-encoding is set by pgsched itself"),
    ({"headers": {"Idempotency-Key": "1"}}, "args.headers: Idempotency-Key is set by pgsched itself"),
    ({"headers": {"X-Pgsched-Token": "1"}}, "args.headers: X-Pgsched-Token is set by pgsched itself"),
    ({"params": "a=1"}, "args.params: expected an object"),
    ({"params": {"a": None}}, PARAM),
    ({"params": {"a": {"b": 1}}}, PARAM),
    ({"params": {"a": [1, [2]]}}, PARAM),
    ({"body": {"a": 1}}, "args.body: expected text"),
    ({"body": "x", "json": None}, "args.body: not together with json"),
    ({"expect": []}, "args.expect: expected an array of statuses"),
    ({"expect": 200}, "args.expect: expected an array of statuses"),
    ({"expect": [200, 99]}, 'args.expect: 99 is neither a status 200-599 nor a class such as "2xx"'),
    ({"expect": ["2XX"]}, 'args.expect: "2XX" is neither a status 200-599 nor a class such as "2xx"'),
    ({"expect": [True]}, 'args.expect: true is neither a status 200-599 nor a class such as "2xx"'),
    ({"connect_timeout_s": 0}, "args.connect_timeout_s: expected a number of seconds, 0.001-600"),
    ({"connect_timeout_s": 601}, "args.connect_timeout_s: expected a number of seconds, 0.001-600"),
    ({"read_timeout_s": "5"}, "args.read_timeout_s: expected a number of seconds, 0.001-86400"),
    ({"read_timeout_s": True}, "args.read_timeout_s: expected a number of seconds, 0.001-86400"),
    ({"follow_redirects": 5}, "args.follow_redirects: expected true or false"),
]  # fmt: skip

RIGHT: list[tuple[str, Any]] = [
    ("http://example.org", {}),
    ("HTTPS://example.org:8443?x=1#y", []),
    ("http://[2001:db8::1]:80/", {"method": "get"}),
    ("http://b\u00fccher.example/\u00fc", {"params": {"a": ["x", 1, True], "b": 1.5}}),
    ("http://a_b.local/'\"{}", {"headers": {"Authorization": "Bearer x~!", "X-Empty": ""}, "json": None}),
    ("http://a.org/@b", {"body": "", "expect": [200, "3xx", 404], "follow_redirects": True}),
    ("http://a.org/", {"connect_timeout_s": 0.001, "read_timeout_s": 86400}),
]
