"""Install each peer into an environment of its own, once per lock.

Invariant: a peer that cannot be installed is named with the reason. An environment is made under another name, and
renamed when it is complete. So an incomplete one is never used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.contestants import Contestant
from bench.report import log_step

LOCKS = Path(__file__).resolve().parent / "peers" / "locks"


class Unavailable(Exception):
    """A peer that cannot be measured on this machine; the text gives the reason."""


def cache() -> Path:
    """Return the folder of the environments: PGSCHED_BENCH_CACHE, or ~/.cache/pgsched-bench."""
    given = os.environ.get("PGSCHED_BENCH_CACHE")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "pgsched-bench"


def command(contestant: Contestant) -> tuple[list[str], dict[str, str]]:
    """Return the command that starts an adapter, and its environment variables. Raises Unavailable."""
    root = str(Path(__file__).resolve().parent.parent)
    if contestant.lock is None:
        return [sys.executable, "-m", contestant.module], {"PYTHONPATH": root}
    lock = LOCKS / contestant.lock
    home = environment(contestant, lock)
    if lock.is_dir():
        script = Path(__file__).parent / "peers" / f"{contestant.name.replace('-', '_')}.mjs"
        # as in graphile-worker's own performance test: no log line for each job
        return [found("node"), str(script)], {
            "BENCH_PREFIX": str(home),
            "NODE_ENV": "production",
            "NO_LOG_SUCCESS": "1",
        }
    return [str(home / "bin" / "python"), "-m", contestant.module], {"PYTHONPATH": root}


def environment(contestant: Contestant, lock: Path) -> Path:
    """Return the directory of the peer's environment; make it if it is missing. Raises Unavailable."""
    files = sorted(lock.iterdir()) if lock.is_dir() else [lock]
    key = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    runs_in = "npm" if lock.is_dir() else f"py{python_version(interpreter(contestant))}"
    home = cache() / f"{lock.stem}-{runs_in}-{key}"
    if home.exists():
        return home
    log_step(f"{contestant.name}: installing what {lock.name} pins into {home}")
    cache().mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="new-", dir=cache()))
    try:
        if lock.is_dir():
            shutil.copytree(lock, fresh, dirs_exist_ok=True)
        for step in steps(contestant, lock, fresh):
            run(contestant, step)
        fresh.rename(home)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return home


def steps(contestant: Contestant, lock: Path, home: Path) -> list[list[str]]:
    """Return the commands that make the environment."""
    if lock.is_dir():
        return [[found("npm"), "ci", "--silent", "--no-fund", "--no-audit", "--prefix", str(home)]]
    # `python -m pip`, because the scripts of a renamed virtual environment contain the old path
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return [[interpreter(contestant), "-m", "venv", str(home)], [*pip, "--no-deps", "-r", str(lock)]]


def run(contestant: Contestant, step: list[str]) -> None:
    """Run one command. Raises Unavailable with its last line if it fails."""
    done = subprocess.run(step, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        raise Unavailable(f"{contestant.label} cannot be installed: {lines[-1][:200]}")


def interpreter(contestant: Contestant) -> str:
    """Return this interpreter, or a newer one from PATH or pyenv if the peer needs it. Raises Unavailable."""
    least = contestant.least_python
    if sys.version_info[:2] >= least:
        return sys.executable
    for minor in range(least[1], least[1] + 6):
        name = f"python{least[0]}.{minor}"
        kept = Path.home().glob(f".pyenv/versions/{least[0]}.{minor}.*/bin/{name}")
        for path in (shutil.which(name), *map(str, kept)):
            if path is not None and python_version(path) is not None:
                return path
    raise Unavailable(f"needs Python {least[0]}.{least[1]}, and there is only {sys.version.split()[0]} here")


def python_version(path: str) -> str | None:
    """Return an interpreter's version without the dots; None for a shim without an interpreter."""
    done = subprocess.run(
        [path, "-c", "import sys; print(*sys.version_info[:2], sep='')"], check=False, capture_output=True, text=True
    )
    return done.stdout.strip() if done.returncode == 0 else None


def found(program: str) -> str:
    """Return the path of a program. Raises Unavailable if it is not installed."""
    path = shutil.which(program)
    if path is None:
        raise Unavailable(f"{program} is not installed here")
    return path
