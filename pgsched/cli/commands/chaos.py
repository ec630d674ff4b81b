"""`pgsched chaos`: inject faults into a throw-away server and check that every guarantee still holds."""

from __future__ import annotations

import importlib.util
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.common import Json
from pgsched.core.text import format_number
from pgsched.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgsched.chaos.registry import Fault, Tier
    from pgsched.chaos.runner import Result

SECONDS = "Go on for so long, in an order drawn from the seed. Default: each fault once."
FAULTS = "Only these, comma-separated. Default: those of the tier."
TIER = "quick (some minutes) or full (all there are)."
SAVE = "Write every history to this file (JSON lines)."
CHECK = "Run nothing: check the histories in this file."
BIN = "Where initdb and postgres are. Default: the embedded PostgreSQL."


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("chaos")(chaos)


def chaos(
    seconds: Annotated[float | None, typer.Option(help=SECONDS, min=0)] = None,
    faults: Annotated[str, typer.Option(help=FAULTS, metavar="A,B")] = "",
    seed: Annotated[int, typer.Option(help="What chance begins with; printed, so that it can be repeated.")] = 1,
    tier: Annotated[str, typer.Option(help=TIER)] = "quick",
    list_: Annotated[bool, typer.Option("--list", help="Only say which faults there are.")] = False,
    save: Annotated[Path | None, typer.Option(help=SAVE, metavar="FILE")] = None,
    check: Annotated[Path | None, typer.Option(help=CHECK, metavar="FILE")] = None,
    bin_dir: Annotated[Path | None, typer.Option("--bin", help=BIN, metavar="DIR")] = None,
    json: Json = False,
) -> None:
    """Break things on purpose and prove that nothing was lost.

    Starts a PostgreSQL server of its own and workers on it, does one fault after another to them under load, and
    checks what was recorded: no slot lost or doubled, one owner at a time, nothing stuck, nothing leaked. Your own
    databases are not touched.

    Exit code: 0 if every promise held, 1 if one was broken.

    \b
    Example:
      pgsched chaos --faults worker-killed,leader-frozen-in-tick
    """
    if tier not in ("quick", "full"):
        raise InputError(f"tier: {tier!r} is not quick or full", "tier")
    require_libraries()
    if check is not None:
        return check_file(check, json)
    from pgsched.chaos.registry import select_faults

    names = [name.strip() for name in faults.split(",") if name.strip()]
    kept: Tier = "full" if tier == "full" or (list_ and not names) else "quick"
    found = select_faults(names, kept)
    if list_:
        return print_faults(found, json)
    if bin_dir is not None and not (bin_dir / "initdb").exists():
        raise InputError(f"bin: there is no initdb in {bin_dir}", "bin")
    return run_faults(found, seed, seconds, bin_dir, save, json)


def require_libraries() -> None:
    """Raise InputError if the libraries that the checks need are missing, before anything runs."""
    if importlib.util.find_spec("cronsim") is None:
        raise InputError("pgsched chaos needs an independent cron library: pip install 'pgsched[chaos]'")


def run_faults(
    faults: list[Fault], seed: int, seconds: float | None, bin_dir: Path | None, save: Path | None, json: bool
) -> None:
    """Run the faults, print a table of the results, and end with exit code 1 if a guarantee was violated.

    What happens goes to stdout, or to stderr with `json`.
    """
    from pgsched.chaos import session
    from pgsched.cli.output.printing import print_text
    from pgsched.control_characters import escape_controls

    def tell(kind: str, text: str) -> None:
        indent = "" if kind == "fault" else "    "
        if json:
            print(escape_controls(indent + text), file=sys.stderr, flush=True)
        else:
            print_text(indent + text, indent="    ")
            sys.stdout.flush()

    signal.signal(signal.SIGTERM, raise_interrupt)
    tell("fault", f"seed {seed}, {len(faults)} fault{'s' * (len(faults) != 1)}, a server of its own")
    results: list[Result] = []
    for result in session.run_faults(faults, seed, seconds, bin_dir, tell):
        if save is not None and not result.skipped:
            session.save(result, save, first=not any(not one.skipped for one in results))
        results.append(result)
        for line in describe_result(result):
            tell("figure", line)
    print_results(results, json)
    raise typer.Exit(int(any(result.violations for result in results)))


def raise_interrupt(*_: object) -> None:
    """Turn SIGTERM into KeyboardInterrupt.

    The started server and workers then end as well when a service manager or a CI ends this process.
    """
    raise KeyboardInterrupt


def describe_result(result: Result) -> list[str]:
    """Describe the result of one fault in lines."""
    if result.skipped:
        return [f"SKIPPED: {result.skipped}"]
    if not result.violations:
        return [f"held ({result.seconds:.0f} s, {len(result.history.runs)} runs)"]
    lines = [f"VIOLATED {one.check}: {one.text}" for one in result.violations]
    return [*lines, f"the logs of its workers are kept in {result.logs}"]


def print_results(results: Sequence[Result], json: bool) -> None:
    """Print the results as a table with totals, or as JSON."""
    from pgsched.chaos import session
    from pgsched.cli.output.printing import print_json, print_table

    if json:
        return print_json([session.as_json(result) for result in results])
    print()
    rows = [
        [r.fault.name, session.verdict(r), f"{r.seconds:.0f}", len(r.history.runs), describe_figures(r)]
        for r in results
    ]
    print_table(["fault", "result", "s", "runs", "figures"], rows, wrap=True)
    count = {name: sum(session.verdict(r) == name for r in results) for name in ("held", "violated", "skipped")}
    print(f"\n{count['held']} held, {count['violated']} violated, {count['skipped']} skipped")
    return None


def describe_figures(result: Result) -> str:
    """Return the worst value of each figure on one line, or why the fault was skipped."""
    worst: dict[str, float] = {}
    for one in result.history.figures:
        worst[one.name] = max(worst.get(one.name, one.value), one.value)
    return result.skipped or "; ".join(f"{name} {format_number(value)}" for name, value in worst.items())


def print_faults(faults: list[Fault], json: bool) -> None:
    """Print the faults: their tier, what they need, and what they do."""
    from pgsched.chaos.site import requirements
    from pgsched.cli.output.printing import print_json, print_table

    if json:
        rows: list[dict[str, Any]] = [
            {
                "fault": one.name,
                "tier": one.tier,
                "needs": one.needs,
                "missing": requirements.missing(one.needs),
                "says": one.summary,
            }
            for one in faults
        ]
        return print_json(rows)
    return print_table(["fault", "tier", "needs", "what happens"],
                       [[fault.name, fault.tier, ",".join(fault.needs), fault.summary] for fault in faults],
                       wrap=True)  # fmt: skip


def check_file(path: Path, json: bool) -> None:
    """Check the histories saved in a file, and end with exit code 1 if one violates a guarantee."""
    from pgsched.chaos import session
    from pgsched.cli.output.printing import print_json
    from pgsched.control_characters import escape_controls

    answers = []
    for one, violations in session.check_file(path):
        answers.append({"fault": one.settings.get("fault"), "seed": one.settings.get("seed"), "violations": violations})
        if not json:
            print(
                escape_controls(
                    f"{one.settings.get('fault')}: {'VIOLATED' if violations else 'held'} ({len(one.runs)} runs)"
                )
            )
            for each in violations:
                print(escape_controls(f"    {each['check']}: {each['text']}"))
    if json:
        print_json(answers)
    raise typer.Exit(int(any(answer["violations"] for answer in answers)))
