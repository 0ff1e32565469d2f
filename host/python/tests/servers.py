"""Real unalike servers, and a proxy before them that does not do what a proxy should."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional

LIMIT_S = 60.0


def stop(process: subprocess.Popen[Any]) -> None:
    """Stops a child where it is until SIGCONT: nothing answers. A thread that runs just now may go on for a moment."""
    process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + 60
    # The state follows the name, which is in brackets.
    while any(
        not stat.read_text().rpartition(")")[2].lstrip().startswith("T")
        for stat in Path(f"/proc/{process.pid}/task").glob("*/stat")
    ):
        assert time.monotonic() < deadline, f"the process {process.pid} does not stop"
        time.sleep(0.001)


def binary() -> str:
    found = os.environ.get("UNALIKE_BIN")
    assert found, "UNALIKE_BIN names no unalike binary: run tests/run --test hosts"
    return found


class Server:
    """A server with a store in a SQLite file."""

    def __init__(self, path: Path, listen: str = "127.0.0.1:0", *more: str) -> None:
        self.path, self._more = path, more
        self._start(listen)

    def _start(self, listen: str) -> None:
        command = [binary(), "--store", f"sqlite://{self.path}", "--listen", listen, *self._more]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.path.parent
        )
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            found = re.search(r"listening on (https?)://(\S+)", line)
            if found:
                self.address = found.group(2)
                break
        else:
            raise AssertionError(f"the server did not start: {''.join(lines)}")
        # Whatever it logs must not fill the pipe.
        threading.Thread(target=self._process.stdout.read, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def kill(self) -> None:
        """kill -9"""
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self._start(self.address)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def serving(path: Path, *more: str) -> Iterator[Server]:
    server = Server(path, "127.0.0.1:0", *more)
    try:
        yield server
    finally:
        server.stop()


def unalike(*arguments: str) -> str:
    """Runs the command line."""
    return subprocess.run([binary(), *arguments], check=True, capture_output=True, text=True).stdout


Change = Callable[[bytes, bytes], Optional[bytes]]
"""Given a request and its answer: what is sent instead, or ``None`` for nothing."""


class Between:
    """Stands between clients and a server (``HOST:PORT``), with a thread for each connection."""

    def __init__(self, server: str) -> None:
        host, port = server.rsplit(":", 1)
        self._upstream = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        raise NotImplementedError

    def close(self) -> None:
        # The thread that accepts hears of it.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class Proxy(Between):
    """Passes each request on by a connection of its own, and what ``change`` makes of the answer back."""

    def __init__(self, server: str, change: Change) -> None:
        self.change = change
        self.passed = 0
        super().__init__(server)
        self.url = f"http://127.0.0.1:{self.port}"

    def _serve(self, client: socket.socket) -> None:
        with client:
            while True:
                request = _message(client)
                if not request:
                    return
                with contextlib.suppress(OSError):
                    with socket.create_connection(self._upstream, LIMIT_S) as upstream:
                        upstream.sendall(request)
                        answer = _message(upstream)
                    self.passed += 1
                    changed = self.change(request, answer)
                    if changed is None:
                        return
                    client.sendall(changed)
                    continue
                return


class Authority:
    """An authority that signs certificates for a day."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder, self._name = folder, name
        self.file = folder / f"{name}.pem"
        self._openssl("req", "-x509", "-days", "2", *self._keyed(name), "-subj", f"/CN={name}")

    def sign(self, *names: str) -> ssl.SSLContext:
        """What a server has whose certificate is for these names, ``DNS:..`` and ``IP:..``."""
        made = f"{self._name}-signed-{len(list(self._folder.glob('*-signed-*.key')))}"
        signed = ["-CA", str(self.file), "-CAkey", str(self._folder / f"{self._name}.key"), "-days", "2"]
        subject = ["-subj", "/CN=server", "-addext", f"subjectAltName={','.join(names)}"]
        self._openssl("req", "-x509", *signed, *self._keyed(made), *subject, "-addext", "basicConstraints=CA:FALSE")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / f"{made}.pem", self._folder / f"{made}.key")
        return context

    def _keyed(self, name: str) -> list[str]:
        at = self._folder / name
        return ["-newkey", "rsa:2048", "-nodes", "-keyout", f"{at}.key", "-out", f"{at}.pem"]

    @staticmethod
    def _openssl(*arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


class TlsProxy(Between):
    """Speaks TLS with clients, and passes on what they say."""

    def __init__(self, server: str, context: ssl.SSLContext) -> None:
        self._context = context
        self.connections = 0
        super().__init__(server)

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.settimeout(LIMIT_S)
            with (
                self._context.wrap_socket(client, server_side=True) as secure,
                socket.create_connection(self._upstream, LIMIT_S) as server,
            ):
                self.connections += 1
                while True:
                    request = _message(secure)
                    if not request:
                        return
                    server.sendall(request)
                    secure.sendall(_message(server))


def _message(source: socket.socket) -> bytes:
    """A request or an answer: head, and as many bytes as it promises."""
    content = b""
    with contextlib.suppress(OSError):
        while b"\r\n\r\n" not in content:
            more = source.recv(65_536)
            if not more:
                return b""
            content += more
        head, _, body = content.partition(b"\r\n\r\n")
        promised = re.search(rb"(?i)content-length: *([0-9]+)", head)
        length = int(promised.group(1)) if promised else 0
        while len(body) < length:
            more = source.recv(65_536)
            if not more:
                break
            body += more
        return head + b"\r\n\r\n" + body
    return b""


def until(happened: Callable[[], Any]) -> Any:
    """Waits for something that comes sooner or later."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        found = happened()
        if found:
            return found
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
