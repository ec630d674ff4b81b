"""A connection that was opened while the process forked is closed, because a child may have a copy of its socket."""

from __future__ import annotations

from pgsched.db.connection import forks


class Opened:
    """A connection that notes whether it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def open_during_forks(count: int) -> tuple[list[Opened], list[Opened]]:
    """Open a connection while the process forks so often; return all that were opened, and those that were kept."""
    opened, kept = list[Opened](), list[Opened]()

    def opening() -> Opened:
        opened.append(Opened())
        if len(opened) <= count:
            forks._newest[0] = object()
        return opened[-1]

    assert forks.open_unshared(opening, kept.append) is opened[-1]
    return opened, kept


def test_a_connection_is_opened_once_where_nothing_forks() -> None:
    opened, kept = open_during_forks(0)
    assert [one.is_closed for one in opened] == [False] and kept == opened


def test_a_connection_that_a_child_may_have_is_closed_and_opened_again() -> None:
    opened, kept = open_during_forks(2)
    assert [one.is_closed for one in opened] == [True, True, False] and kept == opened


def test_a_process_that_forks_all_the_time_gets_a_connection() -> None:
    opened, kept = open_during_forks(1000)
    assert [one.is_closed for one in opened] == 4 * [True] + [False] and kept == opened


def test_a_connection_that_is_opened_between_the_hooks_of_a_fork_is_not_kept() -> None:
    opened = list[Opened]()

    def opening() -> Opened:
        opened.append(Opened())
        forks._under_way.discard(4711)  # the fork ends meanwhile
        return opened[-1]

    forks._under_way.add(4711)
    forks.open_unshared(opening, lambda _: None)
    assert [one.is_closed for one in opened] == [True, False]
