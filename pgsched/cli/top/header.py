"""The first lines and the last line of `pgsched top`: health, charts, tabs, questions, and keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.text import Text

from pgsched.cli.commands.status import describe_leader
from pgsched.cli.times import to_zone
from pgsched.cli.top import PAGES
from pgsched.cli.top.pieces import draw_sparkline, fit_text, join_ends, text_of_value
from pgsched.cli.top.state import State
from pgsched.control_characters import escape_controls
from pgsched.core.text import format_number
from pgsched.core.wording import format_short_duration
from pgsched.services.charts import STRETCHES, Stretch, compute_rate
from pgsched.services.top import Look

LABEL, FIGURES = 11, 23
SAMPLED = "≈"
YOUNG_S, MINUTE_S = 5.0, 60.0
CHARTS_FROM, FIGURES_FROM = 18, 12  # the least height of a screen, in lines, to show them
KEYS = {
    "overview": "Enter open", "running": "Enter open  c cancel  o its job", "queues": "Enter open  p pause/resume",
    "jobs": "Enter open  p pause/resume  / find", "failures": "Enter open  r retry  o its job", "workers": "",
    "run": "Esc back  c cancel  r retry  o its job  arrows scroll", "job": "Esc back  Enter open run  p pause/resume",
    "queue": "Esc back  Enter open run  c cancel  p pause/resume",
}  # fmt: skip
HELP = """\
1-6, Tab        the pages: overview, running, queues, jobs, failures, workers
arrows, j k     select a line; PgUp PgDn Home End (g G) go further
Enter           open the run, job or queue; Esc or Left goes back
o               open the job of the selected run
c               cancel the selected run; asks first, and for a reason
r               retry the selected run, if it ended badly; asks first
p               pause (asks for a reason) or resume the selected job or queue
/               show only lines with these words; Esc shows all again
Ctrl-L          draw the screen anew
q, Ctrl-C       quit (Ctrl-Z suspends)

A column of a chart is 15 seconds, the newest on the right. A gap: no runs.
\u2248 is estimated from a sample, because there were so many.
latency   from being due to the start: 95 % of the runs waited no longer
lateness  from the slot to the start: the worst
errors    runs that ended as dead or missed
A run's page follows its output; arrows scroll, End (G) follows again."""


def header(state: State) -> list[Text]:
    """Return the lines above a page.

    A low screen has fewer of them, and so has the page of a single run, job or queue.
    """
    look, texts = state.look, [health_line(state)]
    if look is not None and state.height >= FIGURES_FROM and not state.help:
        if state.trouble is not None:
            texts += [
                text_of_value(state.trouble.text, "red"),
                Text(f"as of {to_zone(look.now):%H:%M:%S %Z}: ").append_text(open_runs_line(look)),
            ]
        else:
            texts += [processes_line(look), open_runs_line(look)]
        if not state.opened_targets and state.height >= CHARTS_FROM:
            texts += charts(look, state.width, 4 if state.tab == "overview" else 2)
    return [*texts, tabs_line(state)]


def health_line(state: State) -> Text:
    """Return the first line: health or the database's trouble, the database's name, and the time."""
    title = Text("pgsched top ", "bold")
    if state.trouble is not None:
        text = f" THE DATABASE DOES NOT ANSWER for {format_short_duration(round(state.trouble.since_s))}, trying again "
        return title.append(text, "bold red reverse")
    if state.look is None:
        return title
    found = state.look.status
    count = len(found.problems)
    health = Text("healthy", "bold green") if found.healthy else Text(
        f"UNHEALTHY: {count} problem{'s' * (count > 1)}", "bold red")  # fmt: skip
    title.append_text(health).append("  ")
    at = f"  {to_zone(state.look.now):%H:%M:%S %Z}, every {format_short_duration(state.every_s)}"
    room = state.width - cell_len(title.plain) - len(at)  # the name of the database is cut first
    place = text_of_value(state.look.place)
    place.truncate(max(0, room), overflow="ellipsis")
    return join_ends(title, place.append(at), state.width)


def processes_line(look: Look) -> Text:
    """Return a line about the leader and the workers."""
    found, workers = look.status, look.status.workers
    led = found.leader if found.leader is not None and found.leader.alive else None
    text = f"leader {escape_controls(led.holder)}, term {led.term}" if led else f"leader {describe_leader(found)}"
    busy = f"workers {len(workers)}, {sum(w.running for w in workers)}/{sum(w.concurrency for w in workers)} busy"
    parts = [Text(text, "" if led else "yellow"), Text(busy, "" if workers else "yellow")]
    return Text(" · ").join(parts)


def open_runs_line(look: Look) -> Text:
    """Return a line about open runs by state, dead runs and missed slots."""
    found = look.status
    counts = {name: sum(getattr(queue, name) for queue in found.queues)
              for name in ("queued", "running", "waiting", "scheduled")}  # fmt: skip
    more = "" if found.counted_all else "+"
    oldest = max((queue.oldest_queued_s or 0.0 for queue in found.queues), default=0.0)
    sampled, uncounted = ("+" if more else "" for more in (found.attention.sampled, found.attention.uncounted))
    parts = [Text(f"{name} {n:,}{more}") for name, n in counts.items()]
    if oldest:
        parts.append(Text(f"oldest {format_short_duration(oldest)}"))
    parts.append(Text(f"dead {found.attention.dead:,}{uncounted}", "red" if found.attention.dead or uncounted else ""))
    if found.attention.missed_slots_day:
        parts.append(Text(f"missed today {found.attention.missed_slots_day:,}{sampled}", "red"))
    return Text(" · ").join(parts)


def charts(look: Look, width: int, count: int) -> list[Text]:
    """Return the first `count` charts of throughput, latency, lateness and errors."""
    lately = look.stretches
    if lately and (lately[-1].until_at - lately[-1].from_at).total_seconds() < YOUNG_S:
        lately = lately[:-1]  # one or two seconds are too short for a rate
    errors = [one.dead + one.missed for one in lately]
    sampled = SAMPLED if any(one.sampled for one in lately) else ""
    now = f"{sampled}{format_number(compute_rate(lately, MINUTE_S))}/s" if lately else "none"
    lines = [
        chart(
            "throughput", [one.per_s for one in lately], now, lambda n: f"{sampled}{format_number(n)}/s", width, "green"
        ),
        chart(
            "latency",
            [one.wait_95 for one in lately],
            newest_figure(lately, "wait_95"),
            format_short_duration,
            width,
            "cyan",
        ),
        chart(
            "lateness",
            [one.late_max for one in lately],
            newest_figure(lately, "late_max"),
            format_short_duration,
            width,
            "yellow",
        ),
        chart("errors", errors, f"{sum(errors):,.0f}" if errors else "-", lambda n: f"{n:,.0f}", width, "red"),
    ]
    return lines[:count]


def chart(
    name: str, values: Sequence[float | None], now: str, show: Callable[[float], str], width: int, style: str
) -> Text:
    """Draw one chart: its name, a line of blocks, the current and the highest figure."""
    room = min(STRETCHES, width - LABEL - FIGURES)
    known = [value for value in values[-max(room, 0) :] if value is not None]
    most = f" most {show(max(known))}" if known and max(known) > 0 else ""
    text = fit_text(Text(name), LABEL)
    return text.append(draw_sparkline(values, room), style).append(f" {now}").append(most, "dim")


def newest_figure(lately: Sequence[Stretch], name: str) -> str:
    """Return the newest known figure of the last minute."""
    value = next((found for one in reversed(lately[-4:]) if (found := getattr(one, name)) is not None), None)
    return format_short_duration(value) if value is not None else "none"


def tabs_line(state: State) -> Text:
    """Return the line of tabs, or the path to the page of a single run, job or queue."""
    text = Text()
    for n, name in enumerate(PAGES, 1):
        here = name == state.tab
        text.append(
            f" {n} {name} ", "reverse bold" if here and not state.opened_targets else "underline" if here else ""
        )
    for what, key in state.opened_targets:
        text.append("> ", "dim").append_text(text_of_value(f"{what} {key} ", "bold"))
    if state.filter_text:
        text.append_text(text_of_value(f" /{state.filter_text}", "bold yellow"))
    return text


def footer(state: State) -> Text:
    """Return the last line: a question, the result of an action, or the keys."""
    if state.prompt is not None:
        asked = text_of_value(f"{state.prompt.question} ", "bold yellow")
        return asked if state.prompt.text is None else asked.append_text(text_of_value(state.prompt.text + "_", "bold"))
    if state.note is not None:
        return text_of_value(state.note.text, "bold red" if state.note.bad else "bold green")
    if state.help:
        return Text("any key goes back", "dim")
    return join_ends(Text(KEYS[state.page.name], "dim"), Text(" ? help  q quit", "dim"), state.width)


def help_lines() -> list[Text]:
    """Return the list of all keys."""
    return [Text(f" {line}") for line in HELP.splitlines()]
