"""Releases of one app that declare different jobs.

`new` declares `bonuses` and no longer `letters`. `broken` is a later release that cannot start. In `often`, `salaries`
and `letters` are due each second; `seldom` declares only `salaries`.
"""

from __future__ import annotations

from pgsched import App

SELDOM, OFTEN = "0 0 1 1 *", "@every 1s"


def release(app: App, **jobs: str) -> App:
    for name, schedule in jobs.items():
        app.job(schedule=schedule, name=name)(app.task(name=name)(nothing))
    return app


def nothing() -> None: ...


old = release(App("payroll"), salaries=SELDOM, letters=SELDOM)
new = release(App("payroll"), salaries=SELDOM, bonuses=SELDOM)
often = release(App("payroll"), salaries=OFTEN, letters=OFTEN)
seldom = release(App("payroll"), salaries=OFTEN)
broken = release(App("payroll"), taxes=SELDOM)


@broken.on_start
def fail() -> None:
    raise RuntimeError("this release does not start")
