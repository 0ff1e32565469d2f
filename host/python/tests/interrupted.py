"""Draws ids while a signal handler interrupts it at any place, as Ctrl-C does: run by test_ids.py."""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import Any

from unalike import FixedStep, Ids, IdsError
from unalike._lane import Traps
from unalike.memory import MemoryStore


class Interrupt(BaseException):
    pass


drawn: list[int] = []
interrupts = 0
store = MemoryStore()
ids = Ids(segments=store)
orders = ids.sequence("order", step=FixedStep(1))
done, is_drawing = threading.Event(), False
# What is interrupted in a destructor or in a callback of C is printed, and goes on.
sys.unraisablehook = lambda _: None


def interrupt() -> None:
    while not done.is_set():
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        time.sleep(0.0004)


def handler(*_: Any) -> None:
    global interrupts
    if is_drawing:
        interrupts += 1
        raise Interrupt


signal.signal(signal.SIGUSR1, handler)
thread = threading.Thread(target=interrupt)
thread.start()
deadline = time.monotonic() + 60
while interrupts < 500 and time.monotonic() < deadline:
    try:
        is_drawing = True
        while True:
            id = orders.next()
            drawn.append(id)
    except Interrupt:
        is_drawing = False
    except IdsError as error:
        is_drawing = False
        assert error.kind in ("rebuilt", "timeout"), error
    # The pauses between rebuilds are not what is tested.
    ids._here.lane._traps = Traps()
done.set()
thread.join()
assert interrupts >= 500 and len(drawn) > 100, (interrupts, len(drawn))
assert drawn == sorted(set(drawn)), "an id came twice"
assert orders.next() > drawn[-1]
with Ids(segments=store) as others:
    assert others.sequence("order", step=FixedStep(1)).next() > drawn[-1]
print("no id came twice")
