"""LazyEvent is a threading.Event that costs nothing until it is used."""

from __future__ import annotations

import pickle
import threading
import time

import pytest

from pgsched.threads import LazyEvent


def test_lazy_event_defines_every_public_method_of_event() -> None:
    public = {name for name in vars(threading.Event) if not name.startswith("_")} - {"isSet"}
    assert public <= vars(LazyEvent).keys(), "none of them may look at what was never made"


def test_a_lazy_event_is_set_and_cleared() -> None:
    one = LazyEvent()
    assert isinstance(one, threading.Event)
    assert (one.is_set(), repr(one)) == (False, "<Signal: unset>")
    one.clear()
    assert not one.is_set() and not one.wait(0.01)
    one.set()
    assert one.is_set() and one.wait(0) and repr(one) == "<Signal: set>"
    one.clear()
    assert not one.is_set() and not one.wait(0)


def test_a_lazy_event_cannot_be_pickled() -> None:
    """A copy would never be set."""
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(LazyEvent())


def test_setting_a_lazy_event_wakes_all_waiting_threads() -> None:
    for _ in range(50):
        one, woken = LazyEvent(), list[bool]()
        threads = [threading.Thread(target=lambda one=one, woken=woken: woken.append(one.wait(5))) for _ in range(3)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        one.set()
        for thread in threads:
            thread.join()
        assert woken == [True] * 3 and time.monotonic() < began + 4
