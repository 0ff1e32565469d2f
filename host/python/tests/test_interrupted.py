"""Calls from inside of calls: signal handlers, finalizers, clocks and log handlers that take ids, or that raise.

Each program runs in a process of its own, which ends itself when it hangs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mariadb import fresh_database
from redis_servers import RedisProcess

SOURCE = Path(__file__).parents[1] / "src"

BEGIN = """
import faulthandler, sys
faulthandler.dump_traceback_later(60, exit=True)
import gc, itertools, logging, random, signal, threading, time
from unalike import FixedStep, Ids, IdsError, TagOptions
from unalike.memory import MemoryStore

store = MemoryStore()
store.create_tag("ordered", TagOptions(mode="ordered"))

def opened(ids, kind):
    return ids.snowflake("default", "twitter") if kind == "snowflake" else ids.sequence(kind)

class Interrupt(BaseException):
    pass

def interrupting(act, times):
    '''Has a handler interrupt what is called again and again, as Ctrl-C does.'''
    is_armed, interrupts = False, 0

    def handler(*_):
        if is_armed:
            raise Interrupt

    signal.signal(signal.SIGALRM, handler)
    sys.unraisablehook = lambda _: None
    while interrupts < times:
        try:
            try:
                is_armed = True
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00005, 0.001))
                while True:
                    act()
            except Interrupt:
                interrupts += 1
        except Interrupt:
            interrupts += 1
        is_armed = False
        yield interrupts
"""


def run(program: str, *arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", BEGIN + program, *arguments],
        env={"PYTHONPATH": str(SOURCE), "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr[-4_000:]
    return ended.stdout


AT_EACH_STEP = """
kind, outer, inner, runs = sys.argv[1:]
now_ms = time.time_ns() // 1_000_000

def clock():
    '''Short runs are those that last for long.'''
    global now_ms
    now_ms += 0.02 if runs == "long" else 200
    return int(now_ms)

store = MemoryStore(clock=lambda: int(now_ms))
store.create_tag("ordered", TagOptions(mode="ordered"))
ids = Ids(segments=store, leases=store, wait_max=2, clock=clock)
of = opened(ids, kind)
acts = {"next": lambda: [of.next()], "take": lambda: list(of.take(3)), "try": lambda: [of.try_next() or of.next()]}
drawn, nested = 0, 0


class At:
    def __init__(self, step):
        self.step, self.seen, self.ids = step, 0, []

    def __call__(self, frame, event, _):
        if "unalike" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.seen += 1
            if self.seen == self.step:
                sys.settrace(None)
                self.ids = acts[inner]()
        return self


acts[outer]()
beyond = 0
for step in itertools.count(1):
    at = At(step)
    sys.settrace(at)
    try:
        mine = acts[outer]()
    finally:
        sys.settrace(None)
    both = mine + at.ids
    assert len(set(both)) == len(both), (step, mine, at.ids)
    assert min(both) > drawn, (step, mine, at.ids, drawn)
    assert mine == sorted(mine) and at.ids == sorted(at.ids)
    drawn = max(both)
    nested += bool(at.ids)
    # Calls that find ids in hand have fewer steps than those that do not.
    beyond = 0 if at.ids else beyond + 1
    if beyond == 20 or step == 1_500:
        break
assert nested > 10, nested
"""


@pytest.mark.parametrize("runs", ["long", "short"])
@pytest.mark.parametrize("inner", ["next", "take", "try"])
@pytest.mark.parametrize("outer", ["next", "take"])
@pytest.mark.parametrize("kind", ["buffered", "ordered", "snowflake"])
def test_a_handler_that_takes_ids_at_any_step(kind: str, outer: str, inner: str, runs: str) -> None:
    """No id comes twice, and whoever asks after another was answered gets a greater one."""
    run(AT_EACH_STEP, kind, outer, inner, runs)


FINALIZER = """
kind = sys.argv[1]
now_ms = time.time_ns() // 1_000_000

def clock():
    '''Runs that last for long are short: each call enters the component.'''
    global now_ms
    now_ms += 200
    return now_ms

store = MemoryStore(clock=lambda: now_ms)
store.create_tag("ordered", TagOptions(mode="ordered"))
# A busy machine is no fault: what waits for a call that is under way waits for ever.
ids = Ids(segments=store, leases=store, clock=clock, wait_max=40)
of, theirs, errors, mine = opened(ids, kind), [], [], []

class Audited:
    def __init__(self):
        self.me = self

    def __del__(self):
        try:
            theirs.append(of.next())
        except IdsError as error:
            errors.append(error)

deadline = time.monotonic() + 20
while len(mine) < 9_000 and time.monotonic() < deadline:
    # So that it is the turn of each allocation of a call now and then.
    gc.set_threshold(random.randrange(1, 60), 2, 2)
    Audited()
    mine.extend(of.take(3))
gc.disable()
assert len(theirs) > 10 and len(mine) > 10, (len(theirs), len(mine))
assert len({*mine, *theirs}) == len(mine) + len(theirs)
assert mine == sorted(mine)
for error in errors:
    assert error.kind == "nested" and error.is_retryable and "from inside of a call for ids" in str(error), error
"""


@pytest.mark.parametrize("kind", ["buffered", "ordered", "snowflake"])
def test_a_finalizer_that_takes_ids(kind: str) -> None:
    """The garbage collector runs it on any thread, also on that which calls the component."""
    run(FINALIZER, kind)


AT_THE_END = """
import os

kind = sys.argv[1]
ids = Ids(segments=store, leases=store)
of = opened(ids, kind)
of.next()

class Late:
    def __init__(self):
        self.me = self

    def __del__(self, of=of, ids=ids, write=os.write, IdsError=IdsError):
        for act in (of.next, lambda: of.take(100_000), lambda: ids.sequence("later"), ids.close):
            try:
                act()
            except IdsError as error:
                write(1, error.kind.encode() + b" ")

late = Late()
"""


@pytest.mark.parametrize("kind", ["buffered", "ordered", "snowflake"])
def test_a_finalizer_that_takes_ids_when_the_interpreter_ends(kind: str) -> None:
    """There is nobody left to wait for."""
    told = run(AT_THE_END, kind).split()
    assert len(told) >= 2 and set(told) == {"closed"}


CLOCK = """
kind = sys.argv[1]
of, is_inside, errors, theirs = None, False, [], []

def clock():
    global is_inside
    if of is not None and not is_inside:
        is_inside = True
        try:
            theirs.append(of.next())
        except IdsError as error:
            errors.append(error)
        finally:
            is_inside = False
    return time.time_ns() // 1_000_000

ids = Ids(segments=store, leases=store, clock=clock, renew_leases=False)
of = opened(ids, kind)
mine = [of.next() for _ in range(2_000)]
assert len({*mine, *theirs}) == 2_000 + len(theirs) and mine == sorted(mine)
assert all(error.kind == "nested" for error in errors), errors
"""


@pytest.mark.parametrize("kind", ["buffered", "ordered", "snowflake"])
def test_a_clock_that_takes_ids(kind: str) -> None:
    run(CLOCK, kind)


LOG = """
from unalike._component import Trap

kind = sys.argv[1]
ids = Ids(segments=store, leases=store)
of, theirs = opened(ids, kind), []
before = of.next()

class Numbered(logging.Handler):
    def emit(self, record):
        theirs.append(of.next())

logging.getLogger("unalike").addHandler(Numbered())

def trap(*_):
    raise Trap("made for this test")

instance = ids._here.lane._instance[0]
instance.reserve = instance.call = trap
try:
    mine = list(of.take(50_000))
except IdsError as error:
    assert error.kind == "rebuilt", error
    mine = list(of.take(10))
assert len(theirs) == 1 and before < theirs[0] < min(mine), (before, theirs, mine[:2])
"""


@pytest.mark.parametrize("kind", ["buffered", "ordered", "snowflake"])
def test_a_log_handler_that_takes_ids(kind: str) -> None:
    """It is called when the component traps."""
    run(LOG, kind)


OTHERS = """
ids = Ids(segments=store, wait_max=10)
of, is_over = ids.sequence("ordered"), False
theirs, errors = [[], []], []

def draw(into):
    while not is_over:
        try:
            into.append(of.next())
        except IdsError as error:
            errors.append(error)

threads = [threading.Thread(target=draw, args=[into]) for into in theirs]
for thread in threads:
    thread.start()
deadline = time.monotonic() + 15
for interrupts in interrupting(of.next, 2_000):
    if errors or time.monotonic() > deadline:
        break
is_over = True
for thread in threads:
    thread.join()
assert not errors, (interrupts, errors[0])
drawn = theirs[0] + theirs[1]
assert len(set(drawn)) == len(drawn) > 0
assert of.next() > max(drawn)
"""


def test_an_interrupted_caller_harms_no_other_one() -> None:
    """The round in which it waited is for others, too."""
    run(OTHERS)


CLOCK_THAT_FAILS = """
fails = False

def clock():
    if fails and threading.current_thread() is not waiter:
        raise ValueError("made for this test")
    return time.time_ns() // 1_000_000

class Slow(MemoryStore):
    def allocate(self, *asked):
        began.set()
        go.wait()
        return super().allocate(*asked)

waiter, began, go = None, threading.Event(), threading.Event()
store = Slow()
store.create_tag("ordered", TagOptions(mode="ordered"))
ids = Ids(segments=store, clock=clock, wait_max=20)
of, found = ids.sequence("ordered"), []

def wait():
    while True:
        try:
            found.append(of.next())
            return
        except ValueError:
            pass

waiter = threading.Thread(target=wait)
waiter.start()
began.wait()
fails = True
try:
    of.next()
    raise AssertionError("the clock did not fail")
except ValueError:
    pass
fails = False
go.set()
waiter.join()
assert len(found) == 1 and of.next() > found[0]
"""


def test_a_clock_that_fails_ends_nobody_else_s_call() -> None:
    run(CLOCK_THAT_FAILS)


OPENING = """
ids = Ids(segments=store, wait_max=2, request_timeout=2)
numbers = itertools.count()
for interrupts in interrupting(lambda: ids.sequence_of("chat", f"a{next(numbers)}"), 2_000):
    assert ids.sequence_of("check", f"a{interrupts}").next() == 1
ids.close()
"""


def test_opening_that_is_interrupted_harms_nothing() -> None:
    run(OPENING)


STORE = """
import os
from unalike.mysql import MysqlStore
from unalike.redis import RedisStore
from unalike.remote import RemoteStore
from unalike.sqlite import SqliteStore

kind, file, url, redis = sys.argv[1:]
logging.disable()
if kind == "mysql":
    store = MysqlStore(f"{url}?connections=2")
else:
    store = SqliteStore(file, busy_timeout_ms=2_000)
    if kind == "redis":
        store = RedisStore(redis, backing=store)
drawn = []
deadline = time.monotonic() + 6
for interrupts in interrupting(lambda: drawn.append(store.allocate("order", 1, 0).start), 4_000):
    drawn.append(store.allocate("order", 1, 0).start)
    if time.monotonic() > deadline:
        break
assert len(set(drawn)) == len(drawn)

def in_child():
    drawn.append(store.allocate("order", 1, 0).start)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    drawn.append(store.allocate("order", 1, 0).start)

# A fork waits for those who are inside of the store.
thread = threading.Thread(target=in_child)
thread.start()
thread.join()
assert drawn == sorted(drawn)
store.close()
"""


FORK = """
import os
from unalike import _forks

_forks._WAITS_S = 0.2
gate = _forks.gate()
entered = threading.Event()

def stay():
    with gate:
        entered.set()
        threading.Event().wait()

threading.Thread(target=stay, daemon=True).start()
entered.wait()
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
with gate:
    pass
assert not gate._forking and len(gate._inside) == 1
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_waits_for_no_thread_for_ever() -> None:
    run(FORK)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.parametrize("kind", ["sqlite", "mysql", "redis"])
def test_a_store_that_is_interrupted_serves_the_next_call(kind: str, tmp_path: Path) -> None:
    url = fresh_database() if kind == "mysql" else ""
    server = RedisProcess(tmp_path) if kind == "redis" else None
    try:
        run(STORE, kind, str(tmp_path / "ids.sqlite"), url, server.url if server is not None else "")
    finally:
        if server is not None:
            server.kill()


OPENED = """
import asyncio, inspect, os, re, struct, tempfile
from unalike.aio import AsyncFormatted, AsyncSequence, AsyncSnowflake
from unalike.formats import Format
from unalike.sqlite import SqliteStore

kind, call = sys.argv[1:3]
store = SqliteStore(os.path.join(tempfile.mkdtemp(), "ids.sqlite"))
store.create_tag("ordered", TagOptions(mode="ordered"))
# Whoever waits for what only the parent would hear of waits for longer than a child has.
ids = Ids(segments=store, leases=store, wait_max=100, request_timeout=100)
# Each call waits, for the component or for the store.
if kind == "snowflake":
    of, of_coroutines = ids.snowflake("default", "twitter"), AsyncSnowflake
elif kind in ("formatted", "periods"):
    format = Format("{yyyy}{id:012}", restart="year") if kind == "periods" else Format("{id}")
    of, of_coroutines = ids.formatted(kind, format, step=FixedStep(1)), AsyncFormatted
else:
    of, of_coroutines = ids.sequence(kind, step=FixedStep(1)), AsyncSequence
"""


FORKING = """
read, write = os.pipe()
mine, children, is_child, is_forking = [], [], False, False

def draw():
    mine.extend([of.next()] if call == "next" else of.take(3).runs)

def handler(_, frame):
    '''Returns in the child, too: to the middle of a call.'''
    global is_child, is_forking
    if is_child or is_forking:
        return
    while frame is not None and not re.search("unalike.*(?<!batch.py)$", frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        # What a call has returned is the program's, which may fork with it.
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00005, 0.0005))
        return
    is_forking = True
    child = os.fork()
    is_child = child == 0
    if is_child:
        mine.clear()
        # One that hangs ends itself. (faulthandler would wait for its thread, which is the parent's.)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
    else:
        children.append(child)
    is_forking = False

draw()
signal.signal(signal.SIGALRM, handler)
while len(children) < 12 and not is_child:
    signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.004))
    for _ in range(20):
        draw()
signal.setitimer(signal.ITIMER_REAL, 0)
if is_child:
    for _ in range(5):
        draw()
    told = [id for part in mine for id in (part if call == "take" else [part])]
    os.write(write, struct.pack(f"{len(told)}Q", *told))
    os._exit(0)
assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children), "some of them hung"
os.close(write)
with open(read, "rb") as pipe:
    told = [id for id, in struct.iter_unpack("Q", pipe.read())]
assert len(told) >= 12 * 5
told += [id for part in mine for id in (part if call == "take" else [part])]
assert len(told) == len(set(told)), "an id came twice"
os._exit(0)
"""


FORK_AT_THE_END = """
import os, struct, tempfile
from unalike import sequence
from unalike.sqlite import SqliteStore

store = SqliteStore(os.path.join(tempfile.mkdtemp(), "ids.sqlite"))
store.create_tag("ordered", TagOptions(mode="ordered"))
ids = Ids(segments=store)
of = ids.sequence("ordered")
of.next()
read, write = os.pipe()
leave, child = sequence._OrderedWaiting.leave, None

def leaving(self):
    '''As a handler of a signal that runs here: the call has its id, and returns it.'''
    global child
    leave(self)
    if child is None:
        child = os.fork()

sequence._OrderedWaiting.leave = leaving
mine = of.next()
if child == 0:
    signal.alarm(30)
    os.write(write, struct.pack("Q", mine))
    os._exit(0)
os.close(write)
with open(read, "rb") as pipe:
    theirs, = struct.unpack("Q", pipe.read())
assert os.waitpid(child, 0)[1] == 0
assert mine != theirs, "an id came twice"
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_handler_that_forks_when_the_call_has_its_id() -> None:
    run(FORK_AT_THE_END)


FORK_IN_A_COROUTINE = """
import os
from unalike.aio import AsyncSequence
from unalike._lane import Waiting

ids = Ids(segments=store)
of = ids.sequence("buffered", step=FixedStep(1_000))
of.take(3)
child = None

def leaving(self):
    '''As a handler of a signal that runs here: the call has its ids, and returns them.'''
    global child
    if child is None:
        child = os.fork()

Waiting.leave = leaving
try:
    AsyncSequence(of).take(3).send(None)
except StopIteration as ended:
    # What the child is given would be its parent's.
    os._exit(1 if child == 0 or len(ended.value) != 3 else os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
except IdsError as error:
    os._exit(0 if child == 0 and error.kind == "rebuilt" else 2)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_handler_that_forks_when_the_coroutine_has_its_ids() -> None:
    run(FORK_IN_A_COROUTINE)


FORK_AT_EACH_CALL = """
way = sys.argv[3]
of_async = of_coroutines(of)
package = os.path.dirname(sys.modules["unalike"].__file__)

def draw():
    if way == "coroutine":
        return asyncio.run(drawn())
    return [int(of.next())] if call == "next" else list(map(int, of.take(2)))

async def drawn():
    try:
        if call == "next":
            return [int(await of_async.next())]
        return list(map(int, await of_async.take(2)))
    except (IdsError, RuntimeError) as error:
        # A child is in no loop: asyncio says so, or the package.
        is_told = str(error) == "no running event loop" or getattr(error, "kind", None) == "rebuilt"
        if at.child == 0 and is_told:
            os._exit(0)
        raise

def is_ours(frame):
    return frame.f_code.co_filename.startswith(package)

class At:
    '''Forks where a call inside of the package begins or ends, as a handler does that runs there.'''

    def __init__(self, step):
        self.step, self.seen, self.child, self.where = step, 0, None, None

    def __call__(self, frame, event, _):
        inside, is_here = frame, False
        while inside is not None:
            # A child that goes on in the loop of its parent takes what wakes the parent: asyncio has it so.
            if inside.f_code.co_name == "_wait" and inside.f_code.co_flags & inspect.CO_COROUTINE:
                return
            is_here = is_here or is_ours(inside)
            inside = inside.f_back
        if not is_here or frame.f_code.co_filename.endswith("batch.py"):
            return
        # What is returned to the program is the program's, and no handler runs while a coroutine returns.
        is_coroutine = frame.f_code.co_flags & inspect.CO_COROUTINE
        if event == "return" and (is_coroutine or is_ours(frame) and not is_ours(frame.f_back)):
            return
        self.seen += 1
        if self.seen == self.step:
            sys.setprofile(None)
            self.where = f"{event} {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
            self.child = os.fork()
            if self.child == 0:
                # One that hangs ends itself.
                signal.alarm(30)

at = At(0)
draw()
forks, fewer = 0, 0
# Not at each: a text takes many steps, and each fork has the file opened anew.
for step in itertools.count(1, 3):
    at = At(step)
    read, write = os.pipe()
    sys.setprofile(at)
    mine = draw()
    sys.setprofile(None)
    if at.child == 0:
        os.write(write, struct.pack(f"{len(mine)}Q", *mine))
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        theirs = [id for id, in struct.iter_unpack("Q", pipe.read())]
    assert mine and not set(mine) & set(theirs), (at.where, mine, theirs)
    if at.child is None:
        # A call that waits less has fewer steps.
        fewer += 1
        if fewer == 5:
            break
    else:
        forks, fewer = forks + 1, 0
        assert os.waitpid(at.child, 0)[1] == 0, f"hung, or failed: {at.where}"
        assert theirs or way == "coroutine", at.where
assert forks > 10
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.parametrize("way", ["thread", "coroutine"])
@pytest.mark.parametrize("call", ["next", "take"])
@pytest.mark.parametrize("kind", ["buffered", "ordered", "snowflake", "formatted", "periods"])
def test_a_handler_that_forks_at_any_call(kind: str, call: str, way: str) -> None:
    run(OPENED + FORK_AT_EACH_CALL, kind, call, way)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.parametrize("call", ["next", "take"])
@pytest.mark.parametrize("kind", ["buffered", "ordered", "snowflake"])
def test_a_handler_that_forks_and_returns_in_the_child(kind: str, call: str) -> None:
    """The child goes on in the middle of its parent's call, which nobody there would end."""
    run(OPENED + FORKING, kind, call)


END = """
ids = Ids(segments=store, leases=store)
of, flakes = ids.sequence("order", step=FixedStep(1)), ids.snowflake("default", "twitter", horizon_ms=300)
sys.setswitchinterval(1e-6)

def draw():
    while True:
        try:
            of.take(3), of.next(), flakes.status()
        except IdsError:
            pass

for _ in range(3):
    threading.Thread(target=draw, daemon=True).start()
time.sleep(random.random() * 0.1)
"""


def test_threads_that_the_interpreter_ends() -> None:
    """In the middle of a call into the component, it would end the process as well."""
    for _ in range(10):
        run(END)
