"""Runs a wire between two network interfaces. hosts.Wire starts it in a separate namespace. Frames that arrive at one interface
leave at the other interface, unless a command on stdin changes that:

    pass            no change (the default)
    delay MS J      each frame MS +- J milliseconds later, in order; J is a fraction of MS
    drop            every frame is lost silently
    find HEX        prints how many frames so far contained these bytes, and how many there were

`wire.py --listen DEVICE...` only listens and forwards no frames.
`wire.py --plain DEVICE`, in the namespace of each end, makes that end send frames as a real wire carries them: no longer than the
MTU, and with checksums.

The program uses packet sockets, which every kernel has. Kernels without netem or nftables are common in containers."""
import array
import fcntl
import heapq
import random
import select
import socket
import struct
import sys
import time

ETH_P_ALL, PACKET_OUTGOING = 3, 4
SIOCETHTOOL, ETHTOOL_STXCSUM = 0x8946, 0x17
KEEP = 64 << 20  # bytes of frames kept for `find`


def open_port(name):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    s.bind((name, ETH_P_ALL))
    s.setblocking(False)
    return s


class Wire:
    def __init__(self, names, listens=False):
        self.listens = listens
        self.ports = [open_port(n) for n in names]
        self.drop, self.delay, self.jitter = False, 0.0, 0.0
        self.due, self.n, self.frames, self.n_bytes = [], 0, [], 0
        self.last = [0.0, 0.0]  # seconds at which the newest frame of each direction is due, so that frames keep their order

    def receive(self, i):
        for _ in range(64):
            try:
                frame, address = self.ports[i].recvfrom(1 << 16)
            except BlockingIOError:
                return
            if not self.listens and (address[2] == PACKET_OUTGOING or self.drop):
                continue
            if self.n_bytes < KEEP:
                self.frames.append(frame)
                self.n_bytes += len(frame)
            if self.listens:
                continue
            if not self.delay:
                self.send(1 - i, frame)
                continue
            late = time.monotonic() + self.delay + random.uniform(-self.jitter, self.jitter)
            self.last[i] = max(self.last[i], late)
            self.n += 1
            heapq.heappush(self.due, (self.last[i], self.n, 1 - i, frame))

    def send(self, i, frame):
        try:
            self.ports[i].send(frame)
        except OSError:
            pass  # the port is down or the queue is full, so the frame is lost, as on a wire

    def command(self, words):
        if words[0] == "find":
            wanted = bytes.fromhex(words[1])
            return f"{sum(wanted in f for f in self.frames)} {len(self.frames)}"
        self.drop = words[0] == "drop"
        self.delay, self.jitter = (float(w) / 1000 for w in words[1:3]) if words[0] == "delay" else (0.0, 0.0)
        if self.drop:
            self.due.clear()
        return "yes"

    def run(self):
        print("ready", flush=True)
        while True:
            wait = max(0.0, self.due[0][0] - time.monotonic()) if self.due else None
            for ready in select.select([sys.stdin, *self.ports], [], [], wait)[0]:
                if ready is not sys.stdin:
                    self.receive(self.ports.index(ready))
                    continue
                line = sys.stdin.readline()
                if not line:
                    return
                print(self.command(line.split()), flush=True)
            while self.due and self.due[0][0] <= time.monotonic():
                _, _, i, frame = heapq.heappop(self.due)
                self.send(i, frame)


def make_plain(name):
    off = array.array("B", struct.pack("II", ETHTOOL_STXCSUM, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, SIOCETHTOOL, struct.pack("16sP", name.encode(), off.buffer_info()[0]))


if __name__ == "__main__":
    if sys.argv[1] == "--plain":
        make_plain(sys.argv[2])
    elif sys.argv[1] == "--listen":
        Wire(sys.argv[2:], listens=True).run()
    else:
        Wire(sys.argv[1:3]).run()
