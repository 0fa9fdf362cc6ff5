"""A job that speaks the seat protocol itself, and keeps to its rules as far as that is of use: ``raw.py MODE ...``.

It runs as another user, under whatever Python that user may start, so it imports the standard library only; the words
of the seat and the numbers of packets come as JSON in ``RAW_PROTOCOL``.  Each mode says ``ready``, goes on until
SIGTERM, says each second how many packets it has sent, how many descriptors it has got and how many of these hold
`SECRET`, and in the end what else came of it.
"""

import fcntl
import json
import mmap
import os
import random
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from functools import partial

SECRET = b"SECRET-of-another-user!!"
PACKET = struct.Struct("=IIQQQQQ")
PROTOCOL = json.loads(os.environ["RAW_PROTOCOL"])
ODD = (0, 1, 2, 255, 4095, 4096, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 53, (1 << 63) - 1, (1 << 64) - 1)
NAMES, KINDS = sorted(PROTOCOL["fields"]), sorted(PROTOCOL["packets"])
MIB = 1 << 20
F_SEAL_WRITE, F_SEAL_FUTURE_WRITE = 0x8, 0x10
stopping = threading.Event()


class Raw:
    """The job's end of its channel, and its seat."""

    def __init__(self):
        self.channel = socket.socket(fileno=int(os.environ["CARPOOL_JOB_FD"]))
        self.channel.settimeout(20)
        self.fds = []
        self.packets = 0
        self.send("HELLO", PROTOCOL["version"])
        self.setup, given = self.receive()
        if self.setup[0] != PROTOCOL["packets"]["SETUP"]:
            sys.exit("refused")
        self.board_fd, self.lane, self.bank, self.store = given
        self.board = mmap.mmap(self.board_fd, PROTOCOL["board_bytes"])
        self.slot = self.setup[2]
        self.set("pid", os.getpid())

    def send(self, kind, *numbers):
        words = [number & (1 << 64) - 1 for number in (*numbers, 0, 0, 0, 0, 0)[:5]]
        self.send_bytes(PACKET.pack(PROTOCOL["packets"][kind], os.getpid(), *words))

    def send_bytes(self, data, fds=()):
        socket.send_fds(self.channel, [data], fds)
        self.packets += 1

    def receive(self):
        data, fds, _, _ = socket.recv_fds(self.channel, PACKET.size, 16)
        self.fds += fds
        return PACKET.unpack(data), fds

    def drain(self):
        """Everything that has been sent to it meanwhile."""
        self.channel.setblocking(False)
        try:
            while True:
                data, fds, _, _ = socket.recv_fds(self.channel, 100, 16)
                self.fds += fds
                if not data:
                    return
        except OSError:
            return

    def place(self, name):
        offset, form = PROTOCOL["fields"][name]
        return PROTOCOL["header_bytes"] + PROTOCOL["seat_bytes"] * self.slot + offset, f"={form}"

    def set(self, name, value):
        offset, form = self.place(name)
        struct.pack_into(form, self.board, offset, value)

    def get(self, name):
        offset, form = self.place(name)
        return struct.unpack_from(form, self.board, offset)[0]

    def until(self, name, value):
        while self.get(name) != value:
            time.sleep(0.001)

    # As a job that keeps to the rules

    def turn(self):
        self.set("want", 1)
        self.send("WANT")
        self.until("turn", 1)
        self.set("want", 0)

    def grow(self, kind, size):
        number = self.get("grow_seq") + 1
        for name, value in (("grow_class", kind), ("grow_total", size), ("grow_seq", number)):
            self.set(name, value)
        self.send("GROW", kind, size, number)
        self.until("grow_ack", number)
        return self.get("grow_status") == 1

    def release(self):
        self.set("turn", 0)
        self.set("passed_to", 0)
        self.set("passed_seq", self.get("passed_seq") + 1)
        self.send("RELEASED", 1, self.get("passed_seq"))


def hold(raw):
    """The victim: its secret is in its bank, its lane, its log and its environment (`users.User`).

    In the end it looks whether bank and lane still have it; between turns the daemon may empty the lane.
    """
    print(SECRET.decode(), flush=True)
    return fill(raw, SECRET)


def fill(raw, text=b"nothing to hide"):
    """Fill bank and lane with a text."""
    size = 4 * MIB  # `GRANTED` of the tests
    raw.turn()
    granted = raw.grow(0, size) and raw.grow(1, size)
    pattern = (text * (size // len(text) + 1))[:size]
    for fd in (raw.bank, raw.lane):
        os.pwrite(fd, pattern, 0)
    raw.release()
    return lambda: state(granted, pattern, kept(raw, size), lane_now(raw, pattern))


def kept(raw, size):
    """What the bank had: where others needed its memory, the job's shim has moved that to the store, chunk by chunk."""
    whole, chunk = os.fstat(raw.bank).st_size, PROTOCOL["chunk"]
    where = os.pread(raw.store, whole // chunk, whole)
    files = (raw.store if where[at // chunk] == PROTOCOL["in_store"] else raw.bank for at in range(0, size, chunk))
    return b"".join(os.pread(fd, chunk, number * chunk) for number, fd in enumerate(files))


def lane_now(raw, pattern):
    """What the lane has, with the pattern where the daemon has given its pages back: between turns it may."""
    pages = range(0, len(pattern), mmap.PAGESIZE)
    found = ((os.pread(raw.lane, mmap.PAGESIZE, at), pattern[at : at + mmap.PAGESIZE]) for at in pages)
    return b"".join(page if any(page) else expected for page, expected in found)


def state(granted, pattern, bank, lane):
    if not granted:
        return "refused memory"
    damaged = [name for name, found in (("bank", bank), ("lane", lane)) if found != pattern]
    return f"damaged: {', '.join(damaged)}" if damaged else "intact"


def own(raw):
    """Hold a secret, and search one's own descriptors for it."""
    hold(raw)


def steal(raw):
    """Name the banks of others in the seat, and ask for descriptors again."""
    own = raw.setup[6]
    raw.channel.settimeout(0.2)
    for number in range(own + 24):
        raw.set("bank", number)
        raw.set("pid", 0)
        raw.send("HELLO", PROTOCOL["version"])
        try:
            raw.receive()
        except OSError:
            continue


def ask_again(raw):
    """Ask for descriptors without end, as if no answer had ever come, and read none."""
    raw.channel.setblocking(False)
    threading.Thread(target=ask_on, args=(raw,), daemon=True).start()


def ask_on(raw):
    said = False
    while not stopping.is_set():
        raw.set("pid", 0)
        attempt_to_send(raw, "HELLO", PROTOCOL["version"])
        if raw.packets > 5000 and not said:
            said = print("asked", flush=True) is None


def reseat(raw):
    """Stop the shim, which is sent the descriptors of each seat; then give the seat up and take it without end."""
    print("ready", flush=True)
    os.kill(os.getppid(), signal.SIGSTOP)
    while True:
        for fd in raw.fds:
            os.close(fd)
        raw.fds.clear()
        raw.set("leave", PROTOCOL["left"])
        raw.send("HELLO", PROTOCOL["version"])
        raw.setup = raw.receive()[0]
        raw.slot = raw.setup[2]


def stop_shim(raw):
    """Stop the shim without end, by a process that has left the job's session."""
    shim = os.getppid()
    if os.fork():
        return
    os.setsid()
    with suppress(ProcessLookupError):
        while True:
            os.kill(shim, signal.SIGSTOP)
            time.sleep(0.001)
    os._exit(0)


def keep(raw):
    """Take the turn, and never give it back."""
    raw.turn()


def lie(raw):
    """Say to have the turn, which another job of the same lane has."""
    raw.set("turn", 1)


def keep_service(raw):
    """Take a service's turn, before which the training of all users pauses, and never give it back."""
    raw.set("demand_seq", raw.get("demand_seq") + 1)
    raw.turn()


def livelock(raw):
    """Keep the turn, and say without end that it has been passed to oneself."""
    raw.turn()
    raw.channel.setblocking(False)
    threading.Thread(target=livelock_on, args=(raw,), daemon=True).start()


def livelock_on(raw):
    while not stopping.is_set():
        for _ in range(100):
            raw.set("passed_to", raw.slot + 1)
            raw.set("passed_seq", raw.get("passed_seq") + 1 & (1 << 64) - 1)
        attempt_to_send(raw, "RELEASED", 0, 0, 1)
        time.sleep(0.001)


def growflood(raw):
    """Ask for memory and give memory back as often as the channel takes packets."""
    raw.channel.setblocking(False)
    threading.Thread(target=growflood_on, args=(raw,), daemon=True).start()


def growflood_on(raw):
    number = 0
    while not stopping.is_set():
        number += 1
        attempt_to_send(raw, "GROW", 0, number % 100 + 1 << 16, number, 1)
        if number % 8 == 0:
            attempt_to_send(raw, "SHRUNK", 0, 4096)


def attempt_to_send(raw, kind, *numbers):
    try:
        raw.send(kind, *numbers)
    except OSError:
        time.sleep(0.001)


def alone(raw):
    """Say that some of its driver calls pass Carpool by: such a job has its device to itself."""
    raw.set("traits", 4)
    raw.turn()
    raw.release()


def name_lane(raw):
    """Before the daemon is restarted: name a lane of others in the seat."""
    raw.set("lane", int(sys.argv[2]))


def claim(raw):
    """Before the daemon is restarted: claim more memory than there is."""
    for name in ("p_limit", "e_limit", "p_used", "p_peak", "e_peak", "p_live", "e_live"):
        raw.set(name, 1 << 50)


def resize(raw):
    """Change the size of every file, and how others may use it; says how many of the attempts succeed."""
    changed = 0
    for fd in raw.fds:
        size = os.fstat(fd).st_size
        attempts = [partial(os.ftruncate, fd, other) for other in (0, 4096, size // 2, size + 4096, 4 * size)]
        attempts += [partial(fcntl.fcntl, fd, fcntl.F_ADD_SEALS, seal) for seal in (F_SEAL_WRITE, F_SEAL_FUTURE_WRITE)]
        for attempt in attempts:
            with suppress(OSError):
                attempt()
                changed += 1
    return lambda: f"changed {changed}"


def hog(raw):
    """Write so many MiB into the lane or the bank, without having asked for any."""
    fd = {"lane": raw.lane, "bank": raw.bank}[sys.argv[2]]
    for place in range(int(sys.argv[3])):
        os.pwrite(fd, b"x" * MIB, place * MIB)


def fuzz(raw):
    """Write anything into the seat, and send anything, from now on."""
    fuzz_seats(raw, [raw.slot])


def fuzz_near(raw):
    """The same with the seats around it: they are the same user's."""
    fuzz_seats(raw, range(max(0, raw.slot - 8), min(PROTOCOL["seats"], raw.slot + 8)))


def fuzz_whole(raw):
    """The same with every seat of the user's table."""
    fuzz_seats(raw, range(PROTOCOL["seats"]))


def fuzz_seats(raw, slots):
    rng = random.Random(int(sys.argv[2]))
    raw.channel.setblocking(False)
    threading.Thread(target=fuzz_on, args=(raw, rng, slots), daemon=True).start()


def fuzz_on(raw, rng, slots):
    while not stopping.is_set():
        for _ in range(20):
            write_odd(raw, rng, rng.choice(slots))
        try:
            send_odd(raw, rng)
            raw.receive()
        except (OSError, struct.error):
            time.sleep(0.001)  # others of this machine's tests want to compute, too


def write_odd(raw, rng, slot):
    """Any word of a seat."""
    offset, form = PROTOCOL["fields"][rng.choice(NAMES)]
    value = rng.choice(ODD) & (1 << 8 * struct.calcsize(f"={form}")) - 1
    struct.pack_into(f"={form}", raw.board, PROTOCOL["header_bytes"] + PROTOCOL["seat_bytes"] * slot + offset, value)


def send_odd(raw, rng):
    if rng.random() < 0.9:
        raw.send(rng.choice(KINDS), *(rng.choice((*ODD, raw.slot, raw.slot + 1)) for _ in range(5)))
    else:
        raw.send_bytes(rng.randbytes(rng.choice((1, 47, 48, 1000))), [0, 1][: rng.randrange(3)])


def secrets(raw):
    """How many of the descriptors hold the secret."""
    found = 0
    for fd in raw.fds:
        position, size = 0, os.fstat(fd).st_size
        while position < size:
            try:
                position = os.lseek(fd, position, os.SEEK_DATA)
            except OSError:
                break
            data = os.pread(fd, MIB, position)
            if SECRET in data:
                found += 1
                break
            position += len(data)
    return found


def search(raw):
    raw.drain()
    print(f"packets {raw.packets}", flush=True)
    print(f"descriptors {len(raw.fds)}, secrets {secrets(raw)}", flush=True)
    return True


KEEPING = (keep, keep_service, livelock)
FUZZING = (fuzz, fuzz_near, fuzz_whole, growflood)
OTHERS = (ask_again, reseat, stop_shim, hold, fill, own, steal, name_lane, claim, resize, hog, alone, lie)
MODES = {mode.__name__: mode for mode in (*KEEPING, *FUZZING, *OTHERS)}


def main():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    raw = Raw()
    outcome = MODES[sys.argv[1]](raw)
    print("ready", flush=True)
    while search(raw) and not signal.sigtimedwait([signal.SIGTERM], 1.0):
        pass
    stopping.set()
    search(raw)
    if outcome:
        print(outcome(), flush=True)


main()
