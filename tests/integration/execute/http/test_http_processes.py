"""HTTP jobs and programs beside them."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.packages


def test_httpx_is_loaded_only_where_the_kind_is_allowed() -> None:
    code = (
        "import sys; import pgsched.execute.registry, pgsched.execute.http.executor; assert 'httpx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
