"""Draw plots as PNG and SVG if matplotlib is installed (`pip install 'pgsched[bench]'`); otherwise none.

Invariant: a plot shows only what is in results.json. `python -m bench.plots DIR` draws the plots again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.report import log_step

Data = dict[str, Any]


def draw(out: Path) -> list[Path]:
    """Draw the plots of the directory's results.json; return the files."""
    try:
        import matplotlib
    except ImportError:
        log_step("no plots: matplotlib is not installed (pip install 'pgsched[bench]')")
        return []
    matplotlib.use("Agg")
    results = json.loads((out / "results.json").read_text())["results"]
    files: list[Path] = []
    for name, plot in PLOTS.items():
        if name in results:
            files += attempt(out, name, plot, results[name])
    return files


def attempt(out: Path, name: str, plot: Callable[[Data], Any], data: Data) -> list[Path]:
    """Draw one plot; return no file if the data has too few figures, so that the other plots are still drawn."""
    try:
        return saved(out, name, plot(data))
    except (LookupError, TypeError, ValueError) as error:
        log_step(f"no plot of {name}: {type(error).__name__}: {error}")
        return []


def saved(out: Path, name: str, figure: Any) -> list[Path]:
    """Save the figure in both formats; return the files."""
    files = [out / f"{name}.{kind}" for kind in ("png", "svg")]
    for file in files:
        figure.savefig(file, dpi=120, bbox_inches="tight")
    return files


def canvas(columns: int = 1) -> tuple[Any, Any]:
    """Return a figure and its axes."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, columns, figsize=(6.4 * columns, 4.2), squeeze=False)
    return figure, axes


def pinned(data: Data) -> Any:
    """Draw throughput over time, with a pinned xmin and without."""
    ways = [way for way in ("pinned", "free") if way in data]
    figure, [axes] = canvas(len(ways))
    for axis, way in zip(axes, ways, strict=True):
        for name, one in data[way].items():
            axis.plot(range(1, len(one["per_second"]) + 1), one["per_second"], label=name)
        axis.set(title=f"Full load, xmin {way} (first round)", xlabel="s", ylabel="runs/s", ylim=(0, None))
        axis.legend(fontsize="small")
    return figure


def latency(data: Data) -> Any:
    """Draw the share of jobs that was picked up within each time."""
    figure, [[axis]] = canvas()
    for name, one in data["contestants"].items():
        ms = sorted(one["ms"])
        axis.plot([max(value, 0.05) for value in ms], [(i + 1) / len(ms) for i in range(len(ms))], label=name)
    axis.set(title=data["title"], xlabel="ms (0.05 and less: 0.05)", ylabel="share of jobs", xscale="log", ylim=(0, 1))
    axis.legend(fontsize="small")
    return figure


def every_second(data: Data) -> Any:
    """Draw how late the slots of each load started."""
    figure, [[axis]] = canvas()
    for one in data["loads"]:
        ms = sorted(one["ms"])
        axis.plot(ms, [(i + 1) / len(ms) for i in range(len(ms))], label=f"{one['jobs']:,} jobs every second")
    axis.set(title="Slot to handler start", xlabel="ms", ylabel="share of slots", xscale="log", ylim=(0, 1))
    axis.legend(fontsize="small")
    return figure


def history(data: Data) -> Any:
    """Draw which figures grow with the history, and which do not."""
    figure, [axes] = canvas(2)
    rows = [one["rows"] for one in data["steps"]]
    axes[0].plot(rows, [one["claim_us"] for one in data["steps"]], marker="o")
    axes[0].set(title="Claim, per run", xlabel="rows of history", ylabel="us", xscale="symlog", ylim=(0, None))
    for key, label in (("status_ms", "pgsched status"), ("slot_p50_ms", "slot p50"), ("slot_p99_ms", "slot p99")):
        axes[1].plot(rows, [one[key] for one in data["steps"]], marker="o", label=label)
    axes[1].set(title="Status and ticker", xlabel="rows of history", ylabel="ms", xscale="symlog", ylim=(0, None))
    axes[1].legend(fontsize="small")
    return figure


def tick(data: Data) -> Any:
    """Draw how long it takes until all jobs of one second are enqueued."""
    figure, [[axis]] = canvas()
    jobs = [one["jobs"] for one in data["jobs"]]
    for key, label in (("seconds", "pgsched"), ("ceiling_s", "ceiling: bare statements")):
        axis.plot(jobs, [one[key] for one in data["jobs"]], marker="o", label=label)
    axis.set(
        title="Jobs due in one second", xlabel="jobs", ylabel="s until all are enqueued", xscale="log", yscale="log"
    )
    axis.legend(fontsize="small")
    return figure


def drain(data: Data) -> Any:
    """Draw bars of runs per second."""
    figure, [[axis]] = canvas()
    rates = {name: one["rate"] for name, one in data["contestants"].items()}
    axis.barh(list(rates)[::-1], list(rates.values())[::-1])
    axis.set(title=data["title"], xlabel="runs/s (median)")
    return figure


PLOTS: dict[str, Callable[[Data], Any]] = {
    "drain": drain,
    "drain-2": drain,
    "pinned": pinned,
    "ten-minutes": pinned,
    "latency": latency,
    "latency_sql": latency,
    "every-second": every_second,
    "history": history,
    "tick": tick,
}

if __name__ == "__main__":
    for file in draw(Path(sys.argv[1])):
        print(file)
