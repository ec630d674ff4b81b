"""The main loop of `pgsched top`: keys and news from the reader change the state, and each state is drawn.

Invariant: the loop never waits for the database.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pgsched.cli.top.control import QUIT, REDRAW, press
from pgsched.cli.top.frame import frame
from pgsched.cli.top.reader import DatabaseLost, News, Reader
from pgsched.cli.top.screen import Screen
from pgsched.cli.top.state import Note, State, Trouble
from pgsched.db.connection.connect import Connection
from pgsched.services.top import Change, TopReader

TICK_S = 1.0
NOTE_S = 10.0


def run_screen(dsn: str, conn: Connection[Any], tab: str, every_s: float) -> None:
    """Draw until the user quits or the terminal is gone.

    `tab`: the first page.
    `every_s`: seconds between two looks at the database.
    Raises the error of the first look, as any command raises its errors.
    """
    woken, wake = os.pipe()
    for fd in (woken, wake):
        os.set_blocking(fd, False)
    looking, state = TopReader(), State(tab=tab, every_s=every_s)
    state = replace(state, look=looking.look(conn, state.page))  # an error here ends the program, as in any command
    reader = Reader(dsn, conn, looking, state.page, every_s, wake)
    screen = Screen(woken)
    with screen.taken():
        reader.start()
        try:
            loop(screen, reader, state)
        finally:
            reader.stop()


def loop(screen: Screen, reader: Reader, state: State) -> None:
    """Draw, wait for keys or news, apply them, and repeat until the user quits.

    Raises the error that ended the reader's thread.
    """
    noted_at = lost_at = time.monotonic()
    while True:
        width, height = screen.size()
        state = replace(state, width=width, height=height)
        if state.trouble is not None:
            state = replace(state, trouble=replace(state.trouble, since_s=time.monotonic() - lost_at))
        screen.draw(frame(state))
        pressed = screen.wait(TICK_S)
        if pressed is None:
            return
        if reader.error is not None:
            raise reader.error
        while reader.news:
            found = reader.news.popleft()
            lost_at = found.at if isinstance(found, DatabaseLost) else lost_at
            noted_at = time.monotonic() if isinstance(found, Note) else noted_at
            state = apply_news(state, found)
        noted_at = time.monotonic() if pressed else noted_at
        after = press_keys(screen, reader, state, pressed)
        if after is None:
            return
        state = after
        reader.look(state.page)
        if state.note is not None and time.monotonic() - noted_at > NOTE_S:
            state = replace(state, note=None)


def press_keys(screen: Screen, reader: Reader, state: State, keys: Sequence[str]) -> State | None:
    """Apply the keys that the user pressed; return the state after them, or None if the user quits."""
    for key in keys:
        state, wanted = press(state, key)
        if wanted == QUIT:
            return None
        if wanted == REDRAW:
            screen.forget()
        if isinstance(wanted, Change):
            reader.do(wanted)
    return state


def apply_news(state: State, news: News) -> State:
    """Return the state after news from the reader."""
    if isinstance(news, Note):
        return replace(state, note=news)
    if isinstance(news, DatabaseLost):
        return replace(state, trouble=Trouble(news.text, time.monotonic() - news.at))
    return replace(state, look=news, trouble=None)
