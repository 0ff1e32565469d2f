"""Asks several servers for ids without a pause, and goes to the next one when one of them closes.

    rolling.py SECONDS STOP SERVER..

It ends after SECONDS, or when the file STOP is there. The last line is a summary in JSON; the exit code is 1 where a
request got no ids from any server, or an id came twice.

A client with several servers is to behave like this one: `Connection: close`, a closed connection and 503 send it to
the next server, with the same request. Ids of an answer that was lost are a gap.
"""

import http.client
import json
import os
import sys
import threading
import time

CLIENTS = 8
IDS_PER_REQUEST = 10
# For how long a request is tried at one server after the other.
PATIENCE_S = 5.0
PATHS = [
    (f"/v1/sequences/order/ids?count={IDS_PER_REQUEST}", "order"),
    (f"/v1/snowflakes/default/ids?count={IDS_PER_REQUEST}", "default"),
]


class Client(threading.Thread):
    """One connection, which is opened again where it must be."""

    def __init__(self, number: int, servers: list[str], ends: float, stop: str) -> None:
        super().__init__(daemon=True)
        self.servers, self.at, self.ends, self.stop = servers, number, ends, stop
        self.path, self.kind = PATHS[number // 2 % len(PATHS)]
        self.connection: http.client.HTTPConnection | None = None
        self.ids: list[str] = []
        self.requests = self.retried = self.moved = self.slowest_ms = 0
        self.failures: list[str] = []

    def move(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None
        self.at += 1
        self.moved += 1

    def ask(self) -> str | None:
        """One try: None, or why another server is to be asked."""
        server = self.servers[self.at % len(self.servers)]
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection(server, timeout=PATIENCE_S)
            self.connection.request("GET", self.path)
            response = self.connection.getresponse()
            body = response.read()
            if response.status != 200:
                self.move()
                return f"{server}: {response.status} {body.decode(errors='replace')}"
            self.ids.extend(json.loads(body)["ids"])
            if response.will_close:
                self.move()
            return None
        except (OSError, http.client.HTTPException) as error:
            self.move()
            return f"{server}: {error!r}"

    def run(self) -> None:
        while time.monotonic() < self.ends and not os.path.exists(self.stop):
            began = time.monotonic()
            self.requests += 1
            while (why := self.ask()) is not None:
                if time.monotonic() - began > PATIENCE_S:
                    self.failures.append(why)
                    break
                self.retried += 1
                # A moment, where all servers refuse.
                time.sleep(0.01)
            self.slowest_ms = max(self.slowest_ms, int((time.monotonic() - began) * 1000))
            time.sleep(0.002)


def main() -> int:
    seconds, stop, servers = float(sys.argv[1]), sys.argv[2], sys.argv[3:]
    began = time.monotonic()
    clients = [Client(number, servers, began + seconds, stop) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    ids = [(client.kind, id) for client in clients for id in client.ids]
    failures = [failure for client in clients for failure in client.failures]
    for failure in failures[:5]:
        print(f"no ids from any server, the last one said: {failure}", file=sys.stderr)
    twice = len(ids) - len(set(ids))
    summary = {
        "seconds": round(time.monotonic() - began, 1),
        "requests": sum(client.requests for client in clients),
        "ids": len(ids),
        "moved": sum(client.moved for client in clients),
        "retried": sum(client.retried for client in clients),
        "slowest_ms": max(client.slowest_ms for client in clients),
        "failed": len(failures),
        "twice": twice,
    }
    print(json.dumps(summary))
    return 1 if failures or twice or not ids else 0


if __name__ == "__main__":
    sys.exit(main())
