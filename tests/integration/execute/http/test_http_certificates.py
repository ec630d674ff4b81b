"""HTTP jobs verify the TLS certificate of the server."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from pgsched.core.model import Outcome
from pgsched.execute.http.executor import HttpExecutor
from tests.support.executing import claim, execute
from tests.support.http.answering import answer, serving
from tests.support.http.asking_http import HERE

pytestmark = pytest.mark.packages


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Make a self-signed certificate for service.example, in one file with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    path = tmp_path / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=service.example", "-addext", "subjectAltName=DNS:service.example", "-keyout", path,
         "-out", tmp_path / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_text(path.read_text() + (tmp_path / "cert.pem").read_text())
    return path


def test_certificates_are_verified_for_the_name_in_the_url(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def here(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    def ask(host: str) -> Outcome:
        return execute(HttpExecutor(HERE, 1, here), claim("http", server.url(host=host)))

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with serving(context) as server:
        server.answers["/"] = answer(body="private")
        unknown = ask("service.example")
        assert unknown.retry and "CERTIFICATE_VERIFY_FAILED" in (unknown.error or "")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert ask("service.example").value["body"] == "private"
        assert server.seen[-1].headers["host"] == f"service.example:{server.port}"
        assert "CERTIFICATE_VERIFY_FAILED" in (ask("other.example").error or "")
