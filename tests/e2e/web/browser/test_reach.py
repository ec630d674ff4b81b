"""Every page can be used in a real browser: at 400 pixels, in light and dark, and by keyboard alone."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'pgsched[test]'")

JOB = "a%20job%20with%20a%20rather%20long%20name_that_goes_on_and_on"
PAGES = (
    "/", "/?range=1y", "/jobs", f"/jobs/{JOB}?at=", f"/jobs/{JOB}?range=1y", f"/jobs/{JOB}?day={{day}}", "/job/new",
    f"/job/run/{JOB}", "/runs/new", "/runs/new?task=t",
    f"/job/edit/{JOB}", f"/job/backfill/{JOB}?from=2026-05-01&to=2026-05-04", "/runs", "/runs?state=dead&error=x",
    "/runs/{dead}", "/runs/{child}", "/runs/{child}/tree", "/backfills/{backfill}", "/queues", "/workers", "/alerts",
    "/audit", "/doctor", "/runs/999999999", "/locks", "/locks?name={lock}",
)  # fmt: skip
LONG = "long_word" * 30


ROWS = (
    "INSERT INTO pgsched.jobs (name, task, schedule, kind, description, tags, expect_every)"
    " VALUES (%(name)s, 'true', '0 4 * * *', 'shell', %(long)s, '{slow}', '1 s')",
    "INSERT INTO pgsched.jobs (name, task, schedule, after_jobs) SELECT 'after', 't', '0 4 * * *', ARRAY[id]"
    " FROM pgsched.jobs",
    "INSERT INTO pgsched.job_calendars (job_id, from_date, until_date, reason)"
    " SELECT id, current_date, current_date + 1, left(%(long)s, 150) FROM pgsched.jobs WHERE name = %(name)s",
    "INSERT INTO pgsched.runs (task, kind, state, attempt, finished_at, error, job_id, scheduled_at)"
    " SELECT %(long)s, 'shell', 'dead', 1, now(), %(long)s, id, now() - interval '1 day' FROM pgsched.jobs"
    " WHERE name = %(name)s",
    "WITH made AS (INSERT INTO pgsched.runs (task) VALUES ('a'), (%(long)s) RETURNING id)"
    " INSERT INTO pgsched.dependencies (run_id, parent_id) SELECT max(id), min(id) FROM made",
    "INSERT INTO pgsched.alerts (job_id, job, kind, details) SELECT id, name, 'failures', %(long)s FROM pgsched.jobs"
    " WHERE name = %(name)s",
    "INSERT INTO pgsched.queues (name, concurrency_limit) VALUES (left(%(long)s, 90), 3)",
    "SELECT pgsched.lock_acquire(left(%(long)s, 190), gen_random_uuid(), '1 hour', '1 hour', note => %(long)s)"
    " FROM generate_series(1, 2)",
    "INSERT INTO pgsched.pauses (what, name, reason) VALUES ('task', left(%(long)s, 90), %(long)s)",
)
NAMED = """
SELECT (now() - interval '1 day')::date::text, (SELECT max(id) FROM pgsched.runs WHERE state = 'dead'),
    (SELECT max(run_id) FROM pgsched.dependencies), pgsched.backfill(%s, '2026-05-01', '2026-05-04')
"""


BROKEN = """
cells => [...document.querySelectorAll(cells)].filter(cell => {
    const range = document.createRange()
    range.selectNodeContents(cell)
    return new Set([...range.getClientRects()].map(one => one.top)).size != 1
}).map(cell => cell.textContent)
"""


@pytest.fixture(scope="module")
def pages(console: str, dsn: str) -> list[str]:
    """The addresses of all pages, with long texts on each page."""
    name = JOB.replace("%20", " ")
    with psycopg.connect(dsn, autocommit=True) as db:
        for text in ROWS:
            db.execute(text.encode(), {"name": name, "long": LONG})
        found = db.execute(NAMED, [name]).fetchone()
    assert found is not None
    values = dict(zip(("day", "dead", "child", "backfill"), found, strict=True)) | {"lock": LONG[:190]}
    return [console + page.format(**values) for page in PAGES]


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_every_page_fits_a_telephone_and_has_enough_contrast(pages: list[str], chromium: Any, scheme: str) -> None:
    context = chromium.new_context(viewport={"width": 400, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    for url in pages:
        page.goto(url)
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, (url, page.evaluate(TOO_WIDE))
        assert page.evaluate(CONTRAST) == [], (url, scheme)
    context.close()


@pytest.mark.long
def test_short_words_of_tables_are_not_broken_where_there_is_room(pages: list[str], chromium: Any) -> None:
    page = chromium.new_page(viewport={"width": 1300, "height": 900})
    for url, cells in (("/audit", "td[data-label=Who], td[data-label=Did]"), ("/jobs", "td[data-label=Schedule] code")):
        page.goto(next(known for known in pages if known.endswith(url)))
        assert page.evaluate(BROKEN, cells) == [], url
    page.close()


@pytest.mark.long
def test_the_keyboard_reaches_every_control_and_shows_an_outline(pages: list[str], own_page: Any) -> None:
    page = own_page
    page.add_init_script(NOT_LIVE)
    for url in pages:
        page.goto(url)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content", url
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        wanted, steps = page.evaluate(FOCUSABLE), 0
        while page.evaluate("document.activeElement !== document.body") and steps < 2 * wanted + 20:
            steps += 1
            assert page.evaluate(OUTLINED), (url, page.evaluate("document.activeElement.outerHTML.slice(0, 200)"))
            page.keyboard.press("Tab")
            page.evaluate("reached.add(document.activeElement)")
        assert page.evaluate(LEFT_OUT) == [], url
        assert page.evaluate("document.activeElement === document.body"), f"{url} cannot be left again"


@pytest.mark.long
def test_the_first_tab_stop_skips_the_navigation(pages: list[str], page: Any) -> None:
    page.goto(next(url for url in pages if url.endswith("/jobs")))
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "New job"


TOO_WIDE = """() => [...document.querySelectorAll("main *, header *")]
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 1).slice(0, 3)
  .map((one) => one.outerHTML.slice(0, 120))"""
# No live updates, because an element that an update replaces would count as never reached.
NOT_LIVE = "window.EventSource = class { addEventListener() {} close() {} }"
# Returns how many elements a keyboard has to reach.
FOCUSABLE = """() => {
  const kinds = "a[href], button, input, select, textarea, summary, [tabindex='0']";
  window.reached = new WeakSet([document.activeElement]);
  window.reachable = () => [...document.querySelectorAll(kinds)]
    .filter((one) => one.checkVisibility() && !one.disabled && one.type !== "hidden" && one.tabIndex >= 0
            && !one.closest("svg"));
  return reachable().length;
}"""
LEFT_OUT = """() => reachable().filter((one) => !reached.has(one)).map((one) => one.outerHTML.slice(0, 120))"""
OUTLINED = """() => {
  const style = getComputedStyle(document.activeElement);
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
}"""
# Text whose contrast with what lies behind it is below 4.5 (WCAG AA): the class and the text of each.
CONTRAST = """() => {
  const parse = (text) => {
    const p = text.match(/[\\d.]+/g).map(Number), scale = text.startsWith("color(srgb") ? 255 : 1;
    return [p[0] * scale, p[1] * scale, p[2] * scale, p[3] ?? 1];
  };
  const light = (c) => {
    const f = c.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2];
  };
  const behind = (node) => {
    for (let one = node; one; one = one.parentElement) {
      const c = parse(getComputedStyle(one).backgroundColor);
      if (c[3] > 0.9) return c;
    }
    return [255, 255, 255, 1];
  };
  const bad = [];
  for (const node of document.querySelectorAll("main *, header *")) {
    if (node.closest("svg, option, :disabled") || !node.checkVisibility()) continue;
    if (![...node.childNodes].some((c) => c.nodeType === 3 && c.data.trim())) continue;
    const a = light(parse(getComputedStyle(node).color)), b = light(behind(node));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${node.className}: ${node.textContent.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return bad;
}"""
