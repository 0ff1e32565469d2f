"""The store over HTTP, against real servers that are killed, and behind proxies that lie."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from servers import Authority, Proxy, Server, TlsProxy, binary, serving, until, unalike
from test_fork import Child, by_fork, distinct
from unalike import FixedStep, Ids, IdsError, LeaseAcquire, StoreError, TagOptions, TailRelease
from unalike.layouts import LAYOUTS
from unalike.lease_rules import layout_text
from unalike.remote import RemoteStore
from unalike.store import sub_tag


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "ids.sqlite") as started:
        yield started


def refused(kind: str) -> Any:
    return pytest.raises(StoreError, check=lambda error: error.kind == kind)


def test_numbers_tags_and_leases(server: Server) -> None:
    with RemoteStore(server.url) as store:
        options = TagOptions(start=5, step=FixedStep(7), mode="ordered")
        assert store.create_tag("invoice", options).options == options
        with refused("tag-exists"):
            store.create_tag("invoice")
        assert store.open_tag("invoice").options == options
        assert store.open_tag("order").options == TagOptions()
        first, second = store.allocate("order", 10, 0), store.allocate("order", 10, 100)
        assert (first.start, first.end, second.start, second.end) == (1, 11, 100, 110)
        assert not store.release("order", TailRelease(105, first.version))
        assert store.release("order", TailRelease(105, second.version))
        assert store.allocate("order", 1, 0).start == 105
        name = sub_tag("order", "a/b +&?%é")
        assert store.open_tag(name).tag == name and store.allocate(name, 3, 0).end == 4
        assert store.identity() == RemoteStore(server.url).identity() is not None
        for tag in ("..", "."):
            with refused("refused"):
                store.open_tag(tag)
    with Ids(segments=store, leases=store) as ids:
        orders, flakes = ids.sequence("order"), ids.snowflake("default", "twitter")
        assert orders.next() == 106 and len(orders.take(5_000)) == 5_000
        distinct(list(flakes.take(10_000)))
        with pytest.raises(IdsError, match="no snowflake .* is configured"):
            ids.snowflake("unheard-of", "twitter").next()
    assert store.lease_identity() == store.identity()


def test_it_shares_the_store_with_the_command_line(server: Server) -> None:
    with Ids(segments=RemoteStore(server.url)) as ids:
        orders = ids.sequence("order", step=FixedStep(20))
        mine, theirs = [], []
        for _ in range(4):
            mine += [orders.next() for _ in range(33)]
            printed = unalike("next", "order", "-n", "5", "--store", f"sqlite://{server.path}")
            theirs += [int(line) for line in printed.split()]
    distinct(mine, theirs)


def test_a_server_that_is_killed_and_started_again(server: Server) -> None:
    ids = Ids(segments=RemoteStore(server.url, request_timeout=2), wait_max=30)
    orders = ids.sequence("order", step=FixedStep(10))
    drawn: list[int] = []
    failed: list[IdsError] = []
    stop = threading.Event()

    def draw() -> None:
        while not stop.is_set():
            try:
                drawn.append(orders.next())
            except IdsError as error:
                failed.append(error)

    threads = [threading.Thread(target=draw, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        seen = len(drawn)
        until(lambda: len(drawn) > seen + 500)
        server.kill()
        server.restart()
    seen = len(drawn)
    until(lambda: len(drawn) > seen + 500)
    stop.set()
    for thread in threads:
        thread.join()
    distinct(drawn)
    assert all(error.is_retryable for error in failed)
    ids.close()


def test_servers_by_preference(tmp_path: Path) -> None:
    path = tmp_path / "ids.sqlite"
    with serving(path) as first, serving(path) as second:
        store = RemoteStore(f"{first.url},{second.address}")
        numbers = [store.allocate("order", 1, 0).start]
        first.kill()
        numbers += [store.allocate("order", 1, 0).start for _ in range(3)]
        first.restart()
        second.kill()
        numbers += [store.allocate("order", 1, 0).start for _ in range(3)]
        assert numbers == list(range(1, 8)), "no connection proves that nothing was granted"
        first.kill()
        with refused("unavailable"):
            store.allocate("order", 1, 0)


def test_servers_with_different_stores_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "one.sqlite") as one, serving(tmp_path / "other.sqlite") as other:
        store = RemoteStore([one.url, other.url])
        for _ in range(2):
            with pytest.raises(StoreError, match="different stores") as raised:
                store.allocate("order", 1, 0)
            assert raised.value.kind == "refused"
        identity = RemoteStore(one.url).identity()
        assert identity is not None
        pinned = RemoteStore([other.url, one.url], store=identity)
        assert pinned.allocate("order", 5, 0).start == 1
        assert RemoteStore(other.url).allocate("order", 5, 0).start == 1, "the other one was asked for nothing"
        with pytest.raises(StoreError, match="has the store .* was expected"):
            RemoteStore(other.url, store=identity).allocate("order", 1, 0)


def test_another_store_at_an_address_that_moves_during_the_first_request(tmp_path: Path) -> None:
    """Another thread closes meanwhile, so that the next request connects anew."""
    with serving(tmp_path / "one.sqlite") as one, serving(tmp_path / "other.sqlite") as other:

        def move(request: bytes, answer: bytes) -> bytes:
            if b"/segments" in request and proxy._upstream[1] == int(one.address.rpartition(":")[2]):
                store.close()
                host, _, port = other.address.rpartition(":")
                proxy._upstream = (host, int(port))
            return answer

        proxy = Proxy(one.address, move)
        try:
            store = RemoteStore(proxy.url)
            assert store.allocate("order", 5, 0).start == 1
            for _ in range(2):
                with refused("refused"):
                    store.allocate("order", 5, 0)
        finally:
            proxy.close()


def test_it_is_neither_copied_nor_kept_with_its_token(server: Server) -> None:
    store = RemoteStore(server.url, token="hidden")
    store.close()
    for act in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="cannot be pickled or copied: .* Make one in each process"):
            act(store)


def test_threads_wait_for_one_server_together() -> None:
    """One that takes connections and says nothing: their waits do not add up."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        store = RemoteStore("http://{}:{}".format(*silent.getsockname()), request_timeout=1)
        began = time.monotonic()

        def ask(_: int) -> None:
            with refused("unavailable"):
                store.allocate("order", 1, 0)

        with ThreadPoolExecutor(30) as threads:
            list(threads.map(ask, range(30)))
        # Thirty waits of a second, one after another, are what it must not be.
        assert time.monotonic() - began < 20


def test_all_servers_must_answer_before_the_first_is_used(tmp_path: Path) -> None:
    with serving(tmp_path / "ids.sqlite") as server:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nobody = "{}:{}".format(*closed.getsockname())
        store = RemoteStore(f"{server.url},{nobody}")
        with pytest.raises(StoreError, match="must agree before") as raised:
            store.allocate("order", 1, 0)
        assert raised.value.kind == "unavailable"


def test_another_store_behind_the_same_address(tmp_path: Path) -> None:
    """Rule 29: the server comes back with other data."""
    server = Server(tmp_path / "ids.sqlite")
    store = RemoteStore(server.url)
    assert store.allocate("order", 5, 0).start == 1
    server.kill()
    other = Server(tmp_path / "other.sqlite", server.address)
    try:
        for _ in range(2):
            with pytest.raises(StoreError, match="was expected|no server .* can be used") as raised:
                store.allocate("order", 5, 0)
            assert raised.value.kind == "refused"

        def kind() -> list[int]:
            with refused("refused"):
                store.allocate("order", 5, 0)
            return []

        # Nor by connections that are opened anew, here or in a child.
        Child(by_fork, kind).told()
        store.close()
        kind()
    finally:
        other.stop()


def test_children_have_connections_of_their_own(server: Server) -> None:
    ids = Ids(segments=RemoteStore(server.url))
    orders = ids.sequence("order", step=FixedStep(25))
    mine = [orders.next() for _ in range(100)]
    children = [Child(by_fork, lambda: [orders.next() for _ in range(400)]) for _ in range(8)]
    mine += [orders.next() for _ in range(400)]
    distinct(mine, *[child.told() for child in children])
    ids.close()


def test_tokens(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[[tokens]]\nname = "host"\ntoken = "0123456789abcdef0123456789abcdef"\nscope = "lease"\n')
    tokens.chmod(0o600)
    with serving(tmp_path / "ids.sqlite", "--tokens", str(tokens)) as server:
        with pytest.raises(StoreError, match="token") as raised:
            RemoteStore(server.url).allocate("order", 1, 0)
        assert raised.value.kind == "refused" and not raised.value.is_retryable
        with pytest.raises(StoreError, match="token") as raised:
            RemoteStore(server.url, token="f" * 32).allocate("order", 1, 0)
        assert raised.value.kind == "refused" and not raised.value.is_retryable
        store = RemoteStore(server.url, token="0123456789abcdef0123456789abcdef")
        assert store.allocate("order", 1, 0).start == 1
        assert "0123" not in repr(store)


def twice(request: bytes, answer: bytes) -> bytes:
    return answer * 2


class Cached:
    """Answers every third grant with the one before."""

    def __init__(self) -> None:
        self.count, self.kept = 0, b""

    def __call__(self, request: bytes, answer: bytes) -> bytes:
        if b"/segments" not in request:
            return answer
        self.count += 1
        if self.count % 3 == 0 and self.kept:
            return self.kept
        self.kept = answer
        return answer


class Every:
    """Changes every so many grants."""

    def __init__(self, every: int, change: Callable[[bytes], Any]) -> None:
        self.count, self.every, self.act = 0, every, change

    def __call__(self, request: bytes, answer: bytes) -> Any:
        if b"/segments" not in request:
            return answer
        self.count += 1
        return self.act(answer) if self.count % self.every == 0 else answer


def cut(answer: bytes) -> bytes:
    """Half of the body: the head promises the whole."""
    head, separator, body = answer.partition(b"\r\n\r\n")
    return head + separator + body[: len(body) // 2]


def late(answer: bytes) -> bytes:
    threading.Event().wait(0.7)
    return answer


LIES: dict[str, Callable[[], Any]] = {
    "twice": lambda: twice,
    "of a cache": Cached,
    "cut": lambda: Every(3, cut),
    "late": lambda: Every(4, late),
    "lost": lambda: Every(3, lambda answer: None),
    "without its id": lambda: Every(3, lambda answer: answer.replace(b"x-request-id", b"x-request-ix")),
    "a page": lambda: Every(3, lambda answer: b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\nno"),
}


def opened(url: str | list[str]) -> RemoteStore:
    """A store of short requests: on a busy machine the first one may take longer."""
    while True:
        try:
            return RemoteStore(url, request_timeout=0.5)
        except StoreError as error:
            assert error.is_retryable, error


@pytest.mark.parametrize("lie", LIES)
def test_behind_a_proxy_that_lies(server: Server, lie: str) -> None:
    """No id twice, whatever comes; and ids go on."""
    proxy = Proxy(server.address, LIES[lie]())
    try:
        ids = Ids(segments=opened(proxy.url), wait_max=30)
        orders = ids.sequence("order", step=FixedStep(10), prefetch=1)
        drawn: list[list[int]] = [[] for _ in range(3)]
        threads = [
            threading.Thread(target=lambda into=into: into.extend(orders.next() for _ in range(100))) for into in drawn
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # The same numbers by the way past the proxy: whatever was granted to nobody is a gap.
        with Ids(segments=RemoteStore(server.url)) as others:
            more = list(others.sequence("order").take(100))
        distinct(*drawn, more)
        assert [len(into) for into in drawn] == [100, 100, 100]
        ids.close()
    finally:
        proxy.close()


@pytest.mark.parametrize("lie", ["of a cache", "cut", "late", "lost", "without its id", "a page"])
def test_a_lie_is_no_grant(server: Server, lie: str) -> None:
    """What may have been granted is told as that, once, and not asked for again by itself."""
    proxy = Proxy(server.address, LIES[lie]())
    try:
        store = opened(proxy.url)
        store.check()
        granted, unknown = [], 0
        for asked in range(12):
            try:
                granted.append(store.allocate("order", 1, 0).start)
            except StoreError as error:
                assert error.kind == "outcome-unknown", error
                unknown += 1
        assert unknown >= 3 and len(granted) + unknown == 12
        # What was sent reached the store once each.
        assert RemoteStore(server.url).allocate("order", 1, 0).start == 13
        distinct(granted)
    finally:
        proxy.close()


@pytest.mark.parametrize("lie", ["without its id", "a page"])
def test_what_is_no_server_of_unalike_is_told_as_that(server: Server, lie: str) -> None:
    change = LIES[lie]().act
    proxy = Proxy(server.address, lambda request, answer: change(answer))
    try:
        status = 502 if lie == "a page" else 200
        with pytest.raises(StoreError, match=f"with the status {status} by something that is no unalike server"):
            RemoteStore(proxy.url).check()
    finally:
        proxy.close()


@pytest.mark.parametrize("lie", ["of a cache", "cut", "late", "lost", "without its id", "a page"])
def test_a_lie_is_not_told_to_the_next_server(server: Server, lie: str) -> None:
    """Only proof that nothing was granted is."""
    first, second = Proxy(server.address, LIES[lie]()), Proxy(server.address, lambda request, answer: answer)
    try:
        store = opened([first.url, second.url])
        store.check()
        for _ in range(10_000):
            before = second.passed
            try:
                store.allocate("order", 1, 0)
            except StoreError as error:
                assert error.kind == "outcome-unknown", error
                break
        else:
            pytest.fail("the first server never lied")
        assert second.passed == before
        store.allocate("order", 1, 0)
        assert second.passed > before, "the other one is asked first, for a while"
    finally:
        first.close()
        second.close()


def test_what_nobody_asked_for_ends_the_connection(server: Server) -> None:
    proxy = Proxy(server.address, twice)
    try:
        store = RemoteStore(proxy.url)
        numbers = []
        for _ in range(12):
            numbers.append(store.allocate("order", 1, 0).start)
        assert numbers == list(range(1, 13))
    finally:
        proxy.close()


def test_addresses() -> None:
    assert repr(RemoteStore("http://a.example:8080,[::1]:9090/")) == "<RemoteStore http://a.example:8080,[::1]:9090>"
    for address, what in (
        ("ids.example", "scheme"),
        ("ftp://ids.example", "scheme"),
        ("http://", "host"),
        ("http://a,,b", "host"),
        ("http://a:x", "host"),
        ("http://a,a", "twice"),
        ("http://a/v1", "path"),
        ("http://a\\v1", "path"),
        ("http://a#b", "path"),
        ("http://ids:hunter2@a", "user or password"),
        ("http://ids:hunter2", "invalid port"),
        ("http://ids:hunter2?@a", "user or password"),
        ("https://ids:hunter2#@a", "user or password"),
        ("https://a?ssl-ca=/hunter@ca.pem", "in a path an @ is written %40"),
        ("http://a?token=hunter2", "secret in it"),
        ("http://a?ssl_ca=/ca.pem", "parameter 'ssl_ca', and there are store, ssl-ca, connect-timeout-ms, request"),
        ("http://a?store=5eed", "32 hexadecimal digits"),
        ("http://a?connect-timeout-ms=0", 'connect-timeout-ms is "0", .* milliseconds from 1 to 600000'),
        ("http://a?request-timeout-ms=1&request-timeout-ms=2", "twice"),
        ("http://a?ssl-ca=/ca.pem", "has ssl-ca, which needs https"),
        ([], "missing"),
        (None, "the address is None: is its environment variable set?"),
        ("", "the address is empty"),
        (["http://a", None], "the address is None"),
        (5, "the address is of the type int, it must be a text"),
        ("http://a:1,http://b:2", "scheme after a comma: hosts there have none of their own"),
        (["http://a", "https://b"], "mixes"),
    ):
        with pytest.raises(StoreError, match=what) as raised:
            RemoteStore(cast(Any, address))
        assert "hunter2" not in str(raised.value) and raised.value.kind == "refused"
    wrong: list[dict[str, Any]] = [{"store": "5eed"}, {"token": "a\nb"}, {"request_timeout": 0}, {"ssl_ca": "/none"}]
    for options in [*wrong, {"connect_timeout": 601}, {"connect_timeout": True}, {"request_timeout": "5"}]:
        with refused("refused"):
            RemoteStore("https://a" if "ssl_ca" in options else "http://a", **options)
    tokens = {"Bearer hunter2": "leave that out", "hunter2\n": "strip it", "": "the token is empty", 5: "the type int"}
    for token, what in tokens.items():
        with pytest.raises(StoreError, match=what) as raised:
            RemoteStore("http://a", token=cast(Any, token))
        assert "hunter2" not in str(raised.value) and raised.value.kind == "refused"
    with pytest.raises(StoreError, match="certificates in /none/a@b.pem: .*No such file"):
        RemoteStore("https://a?ssl-ca=/none/a%40b.pem")
    with pytest.raises(StoreError, match="has the parameter connect-timeout-ms, which is given by itself as well"):
        RemoteStore("http://a?connect-timeout-ms=100", connect_timeout=1)


def test_https_trusts_the_authorities_that_it_is_told_of(server: Server, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    proxy = TlsProxy(server.address, authority.sign("DNS:ids.example", "IP:127.0.0.1"))
    url = f"https://127.0.0.1:{proxy.port}"
    with RemoteStore(url, ssl_ca=authority.file) as store:
        assert [store.allocate("order", 1, 0).start for _ in range(5)] == [1, 2, 3, 4, 5]
        assert proxy.connections == 1, "connections are kept"
        with Ids(segments=store, leases=store) as ids:
            assert ids.sequence("order").next() == 6 and ids.snowflake("default", "twitter").next() > 0
    with RemoteStore(f"{url}?ssl-ca={authority.file}") as store:
        assert store.allocate("invoice", 1, 0).start == 1
    for options, who in (({}, "the system trusts"), ({"ssl_ca": other.file}, f"{other.file} holds")):
        with RemoteStore(url, **options) as store:
            with pytest.raises(StoreError) as raised:
                store.allocate("order", 1, 0)
        assert raised.value.kind == "unavailable"
        assert re.search(
            f"at {url}: no connection could be opened: its certificate is signed by no authority that {re.escape(who)}; "
            "give ssl-ca the file of the authority that signed it",
            str(raised.value),
        ), raised.value
    with RemoteStore(f"http://127.0.0.1:{proxy.port}") as store:
        with pytest.raises(StoreError, match="brought no answer"):
            store.check()
    proxy.close()
    for names in (["DNS:ids.example"], ["DNS:ids.example", "IP:127.0.0.2"]):
        named = TlsProxy(server.address, authority.sign(*names))
        with RemoteStore(f"https://127.0.0.1:{named.port}", ssl_ca=authority.file) as store:
            with pytest.raises(StoreError, match="is for another name; address it by a name that"):
                store.allocate("order", 1, 0)
        assert named.connections == 0
        named.close()
    with RemoteStore(f"https://{server.address}", ssl_ca=authority.file) as store:
        with pytest.raises(StoreError, match="no TLS; write http:// if it has none"):
            store.allocate("order", 1, 0)
    for content, what in (("", "there is none, as PEM"), ("hello", "there is none, as PEM"), (None, "No such file")):
        file = tmp_path / "none.pem"
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_text(content)
        with pytest.raises(StoreError, match=f"the certificates in {file}: .*{what}"):
            RemoteStore(url, ssl_ca=file)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_accepts_nothing_is_passed_over(server: Server, tmp_path: Path, scheme: str) -> None:
    """Its backlog is full, or it says nothing of TLS."""
    identity = RemoteStore(server.url).identity()
    options: dict[str, Any] = {}
    address, proxy = server.address, None
    if scheme == "https":
        authority = Authority(tmp_path)
        proxy = TlsProxy(server.address, authority.sign("IP:127.0.0.1"))
        address, options = f"127.0.0.1:{proxy.port}", {"ssl_ca": authority.file}
    with socket.socket() as full, contextlib.ExitStack() as waiting:
        full.bind(("127.0.0.1", 0))
        # A backlog of 0 takes one connection. Over TLS there is room, and nobody answers.
        full.listen(0 if scheme == "http" else 10)
        while scheme == "http":
            client = waiting.enter_context(socket.socket())
            client.settimeout(0.2)
            try:
                client.connect(full.getsockname())
            except TimeoutError:
                break
        silent = f"127.0.0.1:{full.getsockname()[1]}"
        began = time.monotonic()
        alone = RemoteStore(f"{scheme}://{silent}", store=identity, connect_timeout=0.3, **options)
        with pytest.raises(StoreError, match=r"no connection could be opened: not within 300 ms \(connect-timeout-ms\)"):
            alone.allocate("order", 1, 0)
        with RemoteStore(f"{scheme}://{silent},{address}", store=identity, connect_timeout=0.3, **options) as store:
            assert [store.allocate("order", 1, 0).start for _ in range(3)] == [1, 2, 3]
        # A hundred times the limit: nothing else would end it.
        assert time.monotonic() - began < 30
    if proxy is not None:
        proxy.close()


def test_layouts_as_text() -> None:
    """The command line reads each as the preset that it is."""
    for name in ("twitter", "leaf", "sonyflake", "baidu", "mastodon"):
        command = [binary(), "layouts", "show", layout_text(LAYOUTS[name])]
        shown = subprocess.run(command, capture_output=True, text=True)
        assert shown.returncode == 0, (name, shown.stderr)


def test_the_environment_decides_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies of the environment are not asked."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setitem(os.environ, name, "http://127.0.0.1:9")
    request = LeaseAcquire("default", LAYOUTS["twitter"], "host a/1", 7, 0, 60_000)
    store = RemoteStore(server.url)
    assert store.allocate("order", 1, 0).start == 1
    with refused("clock-skew"):
        store.acquire(request)
