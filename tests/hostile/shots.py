"""Sends prepared bytes on raw sockets, thousands at once in one thread: the client of tests/hostile.

A Shot describes the bytes to send, their speed, and how much of the answer is read. The Engine runs shots side by side and gives
a Result for each. It parses only the status line, so a shot costs the hostile client only about 0.2 ms of CPU.
"""
import dataclasses
import heapq
import selectors
import socket
import time
from collections.abc import Callable

KEPT_BYTES = 256 << 10  # most bytes of an answer that are kept for inspection
PIECE = 64 << 10


@dataclasses.dataclass
class Shot:
    data: bytes  # bytes sent first, as fast as possible
    drip: bytes = b""  # bytes that are then sent repeatedly
    drip_every_s: float = 1.0  # seconds between the repeats
    drip_times: int = 0  # number of repeats
    tail: bytes = b""  # bytes sent last
    read: float = -1  # bytes a second read from the answer; 0 = none; -1 = as fast as possible
    hold_s: float = 30.0  # seconds after which the client disconnects
    shutdown: bool = False  # true = the client sends FIN after the data, and continues to read


@dataclasses.dataclass
class Result:
    status: int = 0  # HTTP status of the answer; 0 = no answer
    body: bytes = b""  # headers and body of the answer, at most KEPT_BYTES
    n_bytes: int = 0
    seconds: float = 0.0
    closed: bool = False  # true = the server closed the connection; false = the client disconnected
    error: str = ""

    def text(self):
        """Returns the body alone, with its chunks joined."""
        head, _, rest = self.body.partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" not in head.lower():
            return rest
        out = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            try:
                n = int(size, 16)
            except ValueError:
                break
            out, rest = out + rest[:n], rest[n + 2:]
        return out


class Connection:
    def __init__(self, engine, shot, done):
        self.engine, self.shot, self.done = engine, shot, done
        self.begun = time.monotonic()
        self.result = Result()
        self.to_send = memoryview(shot.data)
        self.drips = shot.drip_times
        self.parts = []
        self.n_kept = 0
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        if shot.read >= 0:
            room = max(4096, int(shot.read / 2))  # the buffer of a slow reader must hold half a second of bytes
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        try:
            self.sock.connect(engine.address)
        except BlockingIOError:
            pass
        except OSError as e:
            self.result.error = str(e)
            engine.later(0, lambda: self.end())  # end() must not run inside of start()
            self.ended = False
            return
        self.ended = False
        self.events = 0
        self.want(selectors.EVENT_WRITE | (selectors.EVENT_READ if shot.read < 0 else 0))
        engine.later(shot.hold_s, self.end)
        if shot.read > 0:
            engine.later(0.1, self.sip)

    def want(self, events):
        if events == self.events or self.ended:
            return
        if self.events == 0:
            self.engine.selector.register(self.sock, events, self)
        elif events == 0:
            self.engine.selector.unregister(self.sock)
        else:
            self.engine.selector.modify(self.sock, events, self)
        self.events = events

    def on_writable(self):
        try:
            while self.to_send:
                self.to_send = self.to_send[self.sock.send(self.to_send[:1 << 20]):]
        except BlockingIOError:
            return
        except OSError as e:
            self.result.error = str(e)
            self.want(self.events & ~selectors.EVENT_WRITE)
            self.read_all()  # the buffer may hold a refusal that was sent before the server closed the connection
            return
        self.want(self.events & ~selectors.EVENT_WRITE)
        if self.drips > 0:
            self.drips -= 1
            self.engine.later(self.shot.drip_every_s, lambda: self.send(self.shot.drip))
        elif self.drips == 0 and self.shot.drip_times > 0 and self.shot.tail:
            self.drips = -1
            self.send(self.shot.tail)
        elif self.shot.shutdown:
            try:
                self.sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass

    def send(self, data):
        if self.ended:
            return
        self.to_send = memoryview(data)
        self.want(self.events | selectors.EVENT_WRITE)

    def take(self, data):
        r = self.result
        if self.n_kept < KEPT_BYTES:
            self.parts.append(data)
            self.n_kept += len(data)
        if r.n_bytes == 0 and data.startswith(b"HTTP/1.1 ") and len(data) > 12:
            r.status = int(data[9:12])
        r.n_bytes += len(data)

    def read_all(self):
        try:
            while data := self.sock.recv(PIECE):
                self.take(data)
        except BlockingIOError:
            return
        except OSError as e:
            self.result.error = self.result.error or str(e)
        self.result.closed = True
        self.end()

    def sip(self):
        if self.ended:
            return
        try:
            data = self.sock.recv(max(1, int(self.shot.read / 10)))
            if not data:
                self.result.closed = True
                self.end()
                return
            self.take(data)
        except BlockingIOError:
            pass
        except OSError as e:
            self.result.error, self.result.closed = str(e), True
            self.end()
            return
        self.engine.later(0.1, self.sip)

    def is_over(self):
        """Returns true when the server has closed the connection, also when the client has not yet read the bytes before the end."""
        try:
            return any(not self.sock.recv(PIECE) for _ in range(64))
        except BlockingIOError:
            return False
        except OSError:
            return True

    def end(self):
        if self.ended:
            return
        if self.shot.read > 0 and not self.result.closed:
            self.result.closed = self.is_over()
        if getattr(self, "events", 0):
            self.want(0)
        self.ended = True
        self.sock.close()
        self.result.body = b"".join(self.parts)[:KEPT_BYTES]
        self.result.seconds = time.monotonic() - self.begun
        self.engine.n_open -= 1
        self.done(self.result)


class Engine:
    def __init__(self, host, port):
        self.address = (host, port)
        self.selector = selectors.DefaultSelector()
        self.timers, self.n_timers, self.n_open = [], 0, 0

    def later(self, seconds, call: Callable):
        self.n_timers += 1
        heapq.heappush(self.timers, (time.monotonic() + seconds, self.n_timers, call))

    def start(self, shot, done):
        self.n_open += 1
        try:
            Connection(self, shot, done)
        except OSError as e:  # there is no free descriptor
            self.n_open -= 1
            done(Result(error=str(e)))

    def poll(self, seconds):
        """Waits at most `seconds` for something to do, and does it."""
        now = time.monotonic()
        wait = min(seconds, max(0.0, self.timers[0][0] - now)) if self.timers else seconds
        for key, events in self.selector.select(wait):
            if events & selectors.EVENT_WRITE:
                key.data.on_writable()
            if events & selectors.EVENT_READ and not key.data.ended:
                key.data.read_all()
        now = time.monotonic()
        while self.timers and self.timers[0][0] <= now:
            heapq.heappop(self.timers)[2]()

    def run(self, shots, seconds):
        """Runs all shots at once, and returns the results in the order of the shots."""
        results = [None] * len(shots)

        def keep(i):
            def done(r):
                results[i] = r
            return done

        for i, s in enumerate(shots):
            self.start(s, keep(i))
        end = time.monotonic() + seconds
        while any(r is None for r in results) and time.monotonic() < end:
            self.poll(0.1)
        return [r or Result(error="not ended in time") for r in results]
