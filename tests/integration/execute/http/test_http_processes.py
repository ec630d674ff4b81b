"""httpx is loaded only where HTTP jobs are allowed."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.packages


def test_importing_the_http_executor_does_not_import_httpx() -> None:
    code = (
        "import sys; import pgsched.execute.registry, pgsched.execute.http.executor; assert 'httpx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
