#!/usr/bin/env python3
"""An independent host for Roadtrain's storage frames, written from docs/reference/ethernet.md alone.

    host.py IF[,IF..] NQN [--crc] [--drop P] [--dup P] [--reorder P] [--seed N]

Python 3, standard library, AF_PACKET (needs CAP_NET_RAW). Frames are not sealed. One thread: nothing happens
outside Host.turn(). Congestion control is a fixed window, which the document's rules allow."""
import argparse, os, random, select, socket, struct, sys, time

DISCOVER, OFFER, JOIN, JOINED, PROBE, PROBED, QUERY, CARGO, ACK, LEAVE = range(1, 11)
TYPES = "- Discover Offer Join Joined Probe Probed Query Cargo Ack Leave".split()
F_CRC, F_ASK, F_SEQ, F_SEALED = 1, 2, 4, 8
GROUP = bytes.fromhex("0352544e564d")
HEAD = struct.Struct("<BBHIQHHBxHIIIHHQI4xQ")          # 64 bytes
PAGE, WINDOW, M32 = 4096, 1024, 0xFFFFFFFF
DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"

_table = []
for _i in range(256):
    for _ in range(8):
        _i = _i >> 1 ^ (0x82F63B78 if _i & 1 else 0)
    _table.append(_i)

def crc32c(data):
    crc, table = M32, _table
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ M32

def before(a, b):
    """a is before b, modulo 2^32."""
    return (a - b) & M32 >= 1 << 31

class Header:
    """The 64 bytes; fields by name."""
    NAMES = "version type flags hcrc token socket reply link body seq base ack delay credits sack bcrc number".split()

    def __init__(self, **fields):
        self.__dict__.update(dict.fromkeys(self.NAMES, 0), version=1, delay=65535)
        self.__dict__.update(fields)

    def pack(self):
        return HEAD.pack(*(getattr(self, n) for n in self.NAMES))

    def seal(self, body, crc=False):
        """The frame: header with its CRCs, and body."""
        self.body = len(body)
        if crc:
            self.flags |= F_CRC
            self.bcrc = crc32c(body)
        self.hcrc = 0
        self.hcrc = crc32c(self.pack())
        return self.pack() + body

    @classmethod
    def parse(cls, frame):
        """(header, body), or a string: why the frame is dropped."""
        if len(frame) < 64:
            return "short"
        h = cls(**dict(zip(cls.NAMES, HEAD.unpack_from(frame))))
        if h.version != 1 or not 1 <= h.type <= 10:
            return "version or type"
        if crc32c(frame[:4] + bytes(4) + frame[8:64]) != h.hcrc:
            return "hcrc"
        if len(frame) < 64 + h.body:
            return "shorter than its body"
        body = frame[64:64 + h.body]
        if h.flags & F_CRC and crc32c(body) != h.bcrc:
            return "bcrc"
        return h, body

class Faults:
    """What a network does to frames: each way of a port has its own."""
    def __init__(self, drop=0.0, dup=0.0, reorder=0.0, seed=None):
        self.drop, self.dup, self.reorder = drop, dup, reorder
        self.random, self.held, self.did = random.Random(seed), [], {"drop": 0, "dup": 0, "reorder": 0}

    def __call__(self, item):
        out, r = [], self.random.random
        if r() < self.drop:
            self.did["drop"] += 1
        elif r() < self.reorder:
            self.did["reorder"] += 1
            self.held.append((self.random.randint(1, 8), item))
        else:
            out.append(item)
            if r() < self.dup:
                self.did["dup"] += 1
                out.append(item)
        held, self.held = self.held, []
        for left, other in held:                        # overtaken by this many frames
            (out if left <= 0 else self.held).append(other if left <= 0 else (left - 1, other))
        return out

class Port:
    def __init__(self, name, ethertype=0x88B5, vlan=None):
        self.name, self.ethertype = name, ethertype
        self.tag = b"" if vlan is None else struct.pack(">HH", 0x8100, vlan)   # the kernel takes it off what comes
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(ethertype))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind((name, ethertype))
        self.mac = self.socket.getsockname()[4]
        self.mtu = int(open(f"/sys/class/net/{name}/mtu").read())
        self.number = random.randrange(1, 1 << 16)       # our socket number
        self.tx, self.rx = Faults(), Faults()
        self.sent = self.received = 0

    def send(self, to, frame, source=None):
        for raw in self.tx(to + (source or self.mac) + self.tag + struct.pack(">H", self.ethertype) + frame):
            try:
                self.socket.send(raw.ljust(60, b"\0"))
                self.sent += 1
            except (BlockingIOError, OSError):
                pass                                     # as if lost

    def receive(self):
        """[(source address, frame)]: what is there, at most 256."""
        found = []
        for _ in range(256):
            try:
                raw, address = self.socket.recvfrom(65536)
            except (BlockingIOError, OSError):
                break
            if address[2] == socket.PACKET_OUTGOING:
                continue
            self.received += 1
            found += ((o[6:12], o[14:]) for o in self.rx(raw))
        return found

class Sent:
    """A numbered frame that was sent: what it carried, and when."""
    def __init__(self, at, records):
        self.at, self.records, self.acked, self.lost, self.mark = at, records, False, False, 0

class Channel:
    """A lane's part of a link."""
    def __init__(self, lane, link, port, mac):
        self.lane, self.link, self.port, self.mac, self.up = lane, link, port, mac, False
        self.next = self.base = self.peer_ack = lane.first if lane.first is not None else random.getrandbits(32)
        self.first, self.join = self.next, None
        self.sent, self.credits, self.top_acked = {}, 0, None
        self.srtt = self.dev = None
        self.timeouts, self.backoff, self.suspect, self.answers = 0, 1, False, 0
        self.peer_socket, self.reply_seq = 0, None
        self.ack, self.got, self.top, self.top_at = 0, set(), None, 0.0
        self.ack_due, self.ask_due, self.ask_at, self.heard = False, False, 0.0, 0.0
        self.lost = 0

    # --- receiving
    def take(self, h):
        """BASE, then SEQ. None: the frame counts; else why it is dropped."""
        if not h.flags & F_SEQ:
            return None
        if before(h.seq, h.base):
            return "base after seq"
        if before(self.ack, h.base):                     # numbers before BASE need not arrive
            for n in [n for n in self.got if before(n, h.base)]:
                self.got.discard(n)
            self.ack = h.base
            self.forward()
        if before(h.seq, self.ack) or h.seq in self.got:
            self.ack_due = True
            return "old"
        if (h.seq - self.ack) & M32 >= WINDOW:
            return "beyond window"
        self.got.add(h.seq)
        if self.top is None or before(self.top, h.seq):
            self.top, self.top_at = h.seq, time.monotonic()
        if self.reply_seq is None or before(self.reply_seq, h.seq):
            self.reply_seq, self.peer_socket = h.seq, h.reply
        self.forward()
        self.ack_due = True
        return None

    def forward(self):
        while self.ack in self.got:
            self.got.discard(self.ack)
            self.ack = self.ack + 1 & M32

    def sack(self):
        """SACK, and the further words that are an Ack's body."""
        words = [0] * 16
        for n in self.got:
            at = (n - self.ack - 1) & M32
            words[at // 64] |= 1 << at % 64
        while len(words) > 1 and not words[-1]:
            words.pop()
        return words[0], struct.pack(f"<{len(words) - 1}Q", *words[1:])

    # --- sending
    def in_flight(self):
        return sum(1 for s in self.sent.values() if not (s.acked or s.lost))

    def room(self):
        lane = self.lane
        used = (self.next - self.peer_ack) & M32
        return self.up and used < min(self.credits, WINDOW) and self.in_flight() < lane.window

    def frame(self, type, body=b"", ask=False, records=None):
        """Sends one; with records, or asking, it has a number."""
        now, lane = time.monotonic(), self.lane
        words, more = self.sack()
        if type == ACK:
            body = more
        delay = 65535 if self.top is None else min(int((now - self.top_at) * 1e6), 65535)
        h = Header(type=type, token=lane.peer_token, socket=self.peer_socket, reply=self.port.number, link=self.link,
                   base=self.base, ack=self.ack, sack=words, delay=delay, credits=lane.credits)
        if records is not None or ask:
            h.seq, h.flags = self.next, F_SEQ | (F_ASK if ask else 0)
            self.sent[self.next] = Sent(now, records or [])
            self.next = self.next + 1 & M32
        self.ack_due = False
        body = lane.seal.close(h, body) if lane.seal else body
        lane.host.send(self.port, self.mac, h, body, lane.crc and not lane.seal)

    def acknowledged(self, h, body):
        """The peer's ACK, SACK and CREDITS."""
        now, newly = time.monotonic(), []
        if before(self.next, h.ack):
            return                                       # of numbers that were never sent: makes no sense
        words = [h.sack]
        if h.type == ACK:
            words += struct.unpack_from(f"<{len(body) // 8}Q", body)
        for n, s in self.sent.items():
            at = (n - h.ack - 1) & M32
            if not s.acked and (before(n, h.ack) or (at < 64 * len(words) and words[at // 64] >> at % 64 & 1)):
                s.acked = True
                newly.append(n)
        if not before(h.ack, self.peer_ack):
            self.peer_ack, self.credits = h.ack, h.credits
        if newly:
            top = max(newly, key=lambda n: (n - self.base) & M32)
            if self.top_acked is None or before(self.top_acked, top):
                self.top_acked = top
                if h.delay != 65535:
                    rtt = max(now - self.sent[top].at - h.delay / 1e6, 1e-6)
                    self.dev = rtt / 2 if self.srtt is None else 0.75 * self.dev + 0.25 * abs(self.srtt - rtt)
                    self.srtt = rtt if self.srtt is None else 0.875 * self.srtt + 0.125 * rtt
            self.timeouts, self.backoff = 0, 1
            if self.suspect:
                self.answers += 1
                self.ask_at = now + 0.01
                if self.answers >= 3 or all(c.suspect for c in self.lane.channels):
                    self.suspect = False
        self.find_lost(now)
        self.move_base()

    def give_up(self, n):
        s = self.sent[n]
        s.lost, s.mark = True, self.next
        self.lost += 1
        self.lane.queue[:0] = [r for r in s.records if not r[0].done]   # content again, under another number

    def find_lost(self, now):
        if self.top_acked is None:
            return
        quarter = (self.srtt or 0.001) / 4
        for n, s in list(self.sent.items()):
            if not (s.acked or s.lost) and (self.top_acked - n) & M32 < 1 << 31:
                above, age = self.top_acked - n & M32, now - s.at
                if (above >= 3 and age > quarter) or (above and age > 5 * quarter + max(quarter, 1e-4)):
                    self.give_up(n)

    def move_base(self):
        while self.base in self.sent:
            s = self.sent[self.base]
            passed = s.lost and self.top_acked is not None and not before(self.top_acked, s.mark)
            full = s.lost and sum(1 for t in self.sent.values() if t.lost) >= WINDOW // 2
            if not (s.acked or passed or full):
                break
            del self.sent[self.base]
            self.base = self.base + 1 & M32

    def tick(self, now):
        if not self.up:
            return
        self.find_lost(now)
        live = [(n, s) for n, s in self.sent.items() if not (s.acked or s.lost)]
        rto = min(max(0.02, (self.srtt or 0.05) + 4 * (self.dev or 0.01)) * self.backoff, 0.2)
        if live and now - live[0][1].at > rto:
            self.timeouts, self.backoff, self.answers = self.timeouts + 1, min(self.backoff * 2, 64), 0
            if self.timeouts >= 3 and now - self.heard > 0.05 and not self.suspect:
                self.suspect = True
                for n, _ in live:
                    self.give_up(n)
            else:
                self.give_up(live[0][0])
            self.move_base()
            if not self.suspect:
                self.ask_due = True
        if self.suspect and now >= self.ask_at or now - self.heard > 1 and now - self.ask_at > 1 \
                or self.credits == 0 and now - self.ask_at > 0.01:
            self.ask_at = now + (0.1 if self.suspect else 0)
            self.frame(ACK, ask=True)
            if self.suspect:
                self.lane.query(self)

class Request:
    def __init__(self, lane, slot, generation, sqe, out, inlen, position):
        self.lane, self.slot, self.generation, self.position = lane, slot, generation, position
        self.data, self.got, self.cqe, self.pieces, self.done, self.inlen = bytearray(inlen), set(), None, 0, False, inlen
        sqe = bytearray(sqe)
        struct.pack_into("<H", sqe, 2, slot)
        size = lane.piece
        pieces = -(-len(out) // size)
        self.records = [self.record(1, bytes(sqe) + struct.pack("<II", position, len(out) or (inlen and 1 << 31 | inlen)))]
        for i in range(pieces):
            part = out[i * size:(i + 1) * size]
            self.records.append(self.record(2, struct.pack("<IIHHI", i * size, position, i, pieces, len(out)) + part))

    def record(self, kind, rest):
        head = struct.pack("<BBHHH", kind, self.generation >> 16, 8 + len(rest), self.slot, self.generation & 0xFFFF)
        return head + rest + bytes(-len(rest) % 8)

    @property
    def status(self):
        return struct.unpack_from("<H", self.cqe, 14)[0] >> 1

    @property
    def result(self):
        return struct.unpack_from("<Q", self.cqe)[0]

class LaneEnded(Exception):
    pass

class Lane:
    """A queue pair. links: [(port, address, frame)] of one ENDPOINT; the first one makes the lane."""
    def __init__(self, host, nqn, endpoint, links, slots=32, crc=False, piece=None, first=None, max_links=16):
        self.host, self.nqn, self.endpoint, self.crc, self.first = host, nqn.encode(), endpoint, crc, first
        self.token, self.peer_token = random.getrandbits(64), 0
        self.want, self.max_links, self.slots, self.pages = slots, max_links, slots, 0
        self.frame_sizes = [f for _, _, f in links]
        small = min(self.frame_sizes)
        # 8,400 bytes and more: 4096, else what fits with the header (64), a record's head (24) and a tag (16)
        self.piece = piece or (4096 if small >= 8400 else min(4096, (small - 64 - 24 - 16) // 8 * 8))
        self.channels, self.queue, self.ended = [], [], None
        self.window, self.credits, self.mute = 16, WINDOW, False   # mute: sends nothing, for tests
        self.requests, self.generations, self.free, self.addresses = {}, {}, [], []
        self.dropped, self.seal = {}, None                   # seal: see seal.py
        host.lanes.append(self)
        for port, mac, _ in links:
            self.add(port, mac)

    def join_body(self, ch):
        return struct.pack("<QIHHBBHHH16s", self.token, ch.first, ch.port.mtu, self.piece, ch.link, self.max_links,
                           self.want, 1 if self.crc else 0, len(self.nqn), self.endpoint) + self.nqn

    def add(self, port, mac, tries=8):
        ch = Channel(self, len(self.channels), port, mac)
        h = Header(type=JOIN, token=self.peer_token, reply=port.number, link=ch.link, delay=0)
        ch.join = (h, self.join_body(ch))
        self.channels.append(ch)
        self.joined = None
        if not self.host.repeat(lambda: self.host.send(port, mac, *ch.join, False), lambda: self.joined, tries):
            self.channels.remove(ch)
            raise LaneEnded("no answer to Join")
        status = struct.unpack_from("<H", self.joined[1])[0]
        if status:
            self.channels.remove(ch)
            raise LaneEnded(f"Join refused: {status:#x}")
        return ch

    def on_joined(self, h, body, port, mac):
        if len(body) < 24:
            return
        self.joined = h, body
        status, slots, token, first, pages, frame, window = struct.unpack_from("<HHQIIHH", body)
        if status or h.link >= len(self.channels):
            return
        ch = self.channels[h.link]
        self.addresses = [body[i:i + 6] for i in range(24, len(body) - 5, 6)]
        if ch.up or (self.peer_token and token != self.peer_token):
            return
        if not self.peer_token:
            self.peer_token, self.slots, self.pages = token, slots, pages
            self.free = list(range(slots))
            self.used = bytearray(pages)
        ch.peer_socket, ch.ack, ch.credits, ch.up = h.reply, first, window, True
        ch.size = min(frame, ch.port.mtu, self.frame_sizes[min(h.link, len(self.frame_sizes) - 1)])
        ch.heard = time.monotonic()

    def on_frame(self, h, body, port, mac):
        if h.type == LEAVE:
            if len(body) >= 10 and struct.unpack_from("<Q", body)[0] == self.peer_token \
                    and (not self.seal or body[16:32] == self.seal.peer_proof):
                self.left = True
                self.ended = self.ended or f"Leave, reason {struct.unpack_from('<H', body, 8)[0]}"
            return
        ch = self.channels[h.link] if h.link < len(self.channels) else None
        if ch is None or not ch.up:
            return self.drop("link")
        if self.seal:
            body = self.opened(ch, h, body)
            if body is None:
                return
        why = ch.take(h)
        if why:
            return self.drop(why)
        ch.heard = time.monotonic()
        if h.flags & F_ASK:
            ch.ack_due = True
        ch.acknowledged(h, body)
        if h.type == CARGO:
            self.records(body)

    def opened(self, ch, h, body):
        """The body of a sealed frame that is neither forged nor a replay."""
        seal, first = self.seal, ch not in self.seal.first
        if not h.flags & F_SEALED:
            return self.drop("in the clear")
        if h.flags & F_SEQ and not first and (before(h.seq, ch.ack) or h.seq in ch.got):
            return self.drop("old")
        if not h.flags & F_SEQ and h.number <= seal.tops.get((ch, ACK), -1):
            return self.drop("old Ack")
        body = seal.open(h, body)
        if body is None:
            return self.drop("forged")
        if first:                                       # numbers count as not arrived from its BASE on
            seal.first.add(ch)
            ch.got, ch.ack, ch.reply_seq, ch.top = set(), h.base, None, None
        if not h.flags & F_SEQ:
            seal.tops[(ch, ACK)] = h.number
        return body

    def drop(self, why):
        self.dropped[why] = self.dropped.get(why, 0) + 1

    def records(self, body):
        at = 0
        while at + 8 <= len(body):
            kind, high, length, slot, low = struct.unpack_from("<BBHHH", body, at)
            if kind == 0:
                return
            if kind not in (2, 3) or length < {2: 24, 3: 32}[kind] or at + length > len(body):
                return self.drop("record")
            rest, at = body[at + 8:at + length], at + length + 7 & ~7
            r = self.requests.get(slot)
            if r is None or r.generation != high << 16 | low:
                self.drop("other generation")
                continue
            if kind == 2:
                offset, position, index, pieces, nbytes = struct.unpack_from("<IIHHI", rest)
                part = rest[16:]
                if index in r.got:
                    self.drop("piece again")
                    continue
                assert (index * self.piece, nbytes, position) == (offset, r.inlen, 0), "a piece against the document"
                assert offset + len(part) <= r.inlen and pieces == -(-r.inlen // self.piece), "a piece's place"
                assert len(part) == min(self.piece, r.inlen - offset), "a piece's length"
                r.data[offset:offset + len(part)] = part
                r.got.add(index)
            elif r.cqe:
                self.drop("completion again")
            else:
                r.cqe, r.pieces = rest[:16], struct.unpack_from("<H", rest, 16)[0]
                assert struct.unpack_from("<H", r.cqe, 12)[0] == slot, "CID is the slot"
            if r.cqe and len(r.got) >= r.pieces and not r.done:
                r.done = True
                del self.requests[slot]
                self.free.append(slot)
                for p in range(r.position, r.position + r.npages):
                    self.used[p] = 0

    # --- requests
    def place(self, pages):
        at = self.used.find(bytes(pages)) if pages else 0
        return None if at < 0 else at

    def submit(self, sqe, out=b"", inlen=0, send=True):
        pages, deadline = -(-len(out) // PAGE), time.monotonic() + 30
        while not self.free or self.place(pages) is None:
            self.host.turn(0.05)
            self.alive(deadline)
        at, slot = self.place(pages), self.free.pop(0)
        generation = self.generations[slot] = (self.generations.get(slot, 0) + 1) & 0xFFFFFF
        r = Request(self, slot, generation, sqe, out, inlen, at)
        r.npages, r.out = pages, out
        self.used[at:at + pages] = b"\1" * pages
        self.requests[slot] = r
        if send:
            self.queue += [(r, record) for record in r.records]
            self.pump()
        return r

    def alive(self, deadline):
        if self.ended:
            raise LaneEnded(self.ended)
        if time.monotonic() > deadline:
            raise LaneEnded("nothing happened in time")

    def wait(self, *requests, seconds=30):
        deadline = time.monotonic() + seconds
        while not all(r.done for r in requests):
            self.host.turn(0.05)
            self.alive(deadline)
        return requests[0]

    def command(self, sqe, out=b"", inlen=0, seconds=30):
        return self.wait(self.submit(sqe, out, inlen), seconds=seconds)

    def pump(self):
        """Packs what is queued into frames, up to 64 records each, over links that take them."""
        if self.mute:
            return
        self.queue = [q for q in self.queue if not q[0].done]
        while self.queue:
            ready = [c for c in self.channels if c.room() and not c.suspect] or \
                    [c for c in self.channels if c.room() and c.suspect and not c.in_flight()]
            if not ready:
                break
            ch = min(ready, key=lambda c: c.in_flight())
            size, count = 0, 0
            while count < min(len(self.queue), 64) and size + len(self.queue[count][1]) <= ch.size - 64 - (16 if self.seal else 0):
                size += len(self.queue[count][1])
                count += 1
            if not count:
                raise LaneEnded("a record that fits in no frame")
            records, self.queue = self.queue[:count], self.queue[count:]
            full = ch.in_flight() + 1 >= self.window
            ch.frame(CARGO, b"".join(r for _, r in records), ask=full or ch.ask_due, records=records)
            ch.ask_due = False

    def tick(self, now):
        if self.ended or self.mute:
            return
        for ch in self.channels:
            ch.tick(now)
        self.pump()
        for ch in self.channels:
            if ch.up and (ch.ack_due or ch.ask_due):
                ask, ch.ask_due = ch.ask_due, False
                ch.frame(ACK, ask=ask)

    def query(self, ch):
        h = Header(type=QUERY, token=self.peer_token, reply=ch.port.number, link=ch.link)
        body = struct.pack("<QQH6x", self.peer_token, self.token, len(self.nqn)) + self.nqn
        self.host.send(ch.port, ch.mac, h, body, False)

    def leave(self, reason=2, tries=8):
        """Repeats Leave on each link until it is answered; True when it was."""
        self.left, self.ended = False, self.ended or "left"
        def send():
            for ch in self.channels:
                h = Header(type=LEAVE, token=self.peer_token, socket=ch.peer_socket, reply=ch.port.number, link=ch.link)
                self.host.send(ch.port, ch.mac, h, struct.pack("<QH6x", self.token, reason) + (self.seal.proof if self.seal else b""),
                               self.crc and not self.seal)
        done = self.host.repeat(send, lambda: self.left, tries, 0.01)
        self.host.lanes.remove(self)
        return bool(done)

class Host:
    def __init__(self, names, ethertype=0x88B5, vlan=None):
        self.ports = [Port(n, ethertype, vlan) for n in names]
        self.lanes, self.offers, self.probed, self.taps, self.dropped = [], {}, {}, [], {}

    def send(self, port, mac, header, body=b"", crc=False):
        frame = header.seal(body, crc)
        for tap in self.taps:
            tap(">", port, header, body)
        port.send(mac, frame)

    def turn(self, timeout=0.0):
        """Takes what has come, then does what is due."""
        select.select([p.socket for p in self.ports], [], [], min(timeout, 0.005) if self.lanes else timeout)
        for port in self.ports:
            for mac, frame in port.receive():
                self.take(port, mac, frame)
        now = time.monotonic()
        for lane in list(self.lanes):
            lane.tick(now)

    def take(self, port, mac, frame):
        parsed = Header.parse(frame)
        if isinstance(parsed, str):
            self.dropped[parsed] = self.dropped.get(parsed, 0) + 1
            return
        h, body = parsed
        if h.socket != port.number:
            return
        for tap in self.taps:
            tap("<", port, h, body)
        if h.type == OFFER and len(body) >= 24:
            endpoint, frame_size, n = struct.unpack_from("<16sHH", body)
            self.offers[(port, mac, body[24:24 + n].decode(errors="replace"))] = endpoint, frame_size
        elif h.type == PROBED and len(body) >= 2:
            self.probed[(port, mac)] = struct.unpack_from("<H", body)[0]
        else:
            for lane in self.lanes:
                if lane.token == h.token:
                    return lane.on_joined(h, body, port, mac) if h.type == JOINED else lane.on_frame(h, body, port, mac)
            self.dropped["token"] = self.dropped.get("token", 0) + 1

    def repeat(self, send, done, tries, first=0.05):
        """Sends every 50 ms, doubled up to 1 s, until done() says something."""
        pause = first
        for _ in range(tries):
            send()
            deadline = time.monotonic() + pause
            while time.monotonic() < deadline:
                self.turn(deadline - time.monotonic())
                if done():
                    return done()
            pause = min(pause * 2, 1.0)
        return None

    def discover(self, nqn="", seconds=0.2):
        """{(port, address, NQN): (ENDPOINT, FRAME)} of who answers."""
        self.offers.clear()
        for port in self.ports:
            self.send(port, GROUP, Header(type=DISCOVER, reply=port.number, delay=0), nqn.encode())
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.turn(end - time.monotonic())
        return dict(self.offers)

    def probe(self, port, mac, frame):
        """The largest frame that gets through."""
        top = min(port.mtu, frame)
        for size in [top] + [s for s in (9000, 4096 + 160, 1500) if s < top]:
            self.probed.pop((port, mac), None)
            send = lambda: self.send(port, mac, Header(type=PROBE, reply=port.number, delay=0), bytes(size - 64))
            if self.repeat(send, lambda: self.probed.get((port, mac)) == size, 4):
                return size
        return None

    def find(self, nqn):
        """(ENDPOINT, [(port, address, frame)]) of the target with most links."""
        for _ in range(10):
            by = {}
            for (port, mac, name), (endpoint, frame) in self.discover(nqn).items():
                if name == nqn and port not in [l[0] for l in by.get(endpoint, [])]:
                    by.setdefault(endpoint, []).append((port, mac, frame))
            if by:
                endpoint, found = max(by.items(), key=lambda e: len(e[1]))
                found = [(p, m, self.probe(p, m, f)) for p, m, f in found]
                return endpoint, [l for l in found if l[2]]
        raise LaneEnded("nobody offers " + nqn)

# --- NVMe over Fabrics, as far as it is needed here

def sqe(opcode, nsid=0, cdw10=0, cdw11=0, cdw12=0, cdw13=0, cdw14=0, cdw15=0):
    return struct.pack("<BBHI32xIIIIII", opcode, 0x40, 0, nsid, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15).ljust(64, b"\0")

def fabrics(fctype, rest=b""):
    return (struct.pack("<BBHB35x", 0x7F, 0x40, 0, fctype) + rest).ljust(64, b"\0")

class Failed(Exception):
    pass

class Controller:
    """A controller with its admin lane and one I/O lane."""
    def __init__(self, host, nqn, hostnqn="nqn.2014-08.org.nvmexpress:uuid:6d1f4c3e-0000-4000-8000-657468657270",
                 kato=15000, crc=False, links=None, first=None, slots=32, max_links=16, piece=None):
        self.host, self.nqn, self.hostnqn, self.kato = host, nqn, hostnqn, kato
        self.hostid = bytes.fromhex("6d1f4c3e000040008000657468657270")
        self.options = dict(crc=crc, first=first, max_links=max_links, piece=piece)
        self.endpoint, found = host.find(nqn)
        self.links = (links and found[:links]) or found
        self.admin = Lane(host, nqn, self.endpoint, self.links, slots, **self.options)
        self.cntlid = self.connect(self.admin, 0, 0xFFFF) & 0xFFFF
        self.cap = self.get(0, 1)
        self.set(0x14, 0x00460001)
        while not self.get(0x1C) & 1:
            host.turn(0.01)

    def connect(self, lane, qid, cntlid):
        rest = struct.pack("<HHHBxI", 0, qid, lane.slots - 1, 0, self.kato if qid == 0 else 0)
        data = (self.hostid + struct.pack("<H", cntlid)).ljust(256, b"\0") + \
            self.nqn.encode().ljust(256, b"\0") + self.hostnqn.encode().ljust(256, b"\0")
        return self.ok(lane.command(fabrics(1, rest), data.ljust(1024, b"\0")))

    @staticmethod
    def ok(r):
        if r.status:
            raise Failed(f"status {r.status & 0x7FF:#x}")
        return r.result

    def get(self, offset, size=0):
        return self.ok(self.admin.command(fabrics(4, struct.pack("<B3xI", size, offset))))

    def set(self, offset, value, size=0):
        return self.ok(self.admin.command(fabrics(0, struct.pack("<B3xIQ", size, offset, value))))

    def identify(self, cns, nsid=0):
        r = self.admin.command(sqe(6, nsid, cns), inlen=4096)
        self.ok(r)
        return bytes(r.data)

    def log(self, lid, nbytes, nsid=0):
        r = self.admin.command(sqe(2, nsid, lid | (nbytes // 4 - 1) << 16), inlen=nbytes)
        self.ok(r)
        return bytes(r.data)

    def keep_alive(self):
        self.ok(self.admin.command(sqe(0x18)))

    def io_lane(self, slots=64, qid=1):
        self.ok(self.admin.command(sqe(9, 0, 7, qid - 1 << 16 | qid - 1)))      # Number of Queues
        self.io = Lane(self.host, self.nqn, self.endpoint, self.links, slots, **self.options)
        self.connect(self.io, qid, self.cntlid)
        return self.io

    def namespace(self, nsid=1):
        ns = self.identify(0, nsid)
        self.blocks, self.lba = struct.unpack_from("<Q", ns)[0], 1 << ns[128 + 4 * (ns[26] & 15) + 2]
        return self.blocks, self.lba

    def write_sqe(self, at, nbytes, nsid=1, opcode=1):
        return sqe(opcode, nsid, at // self.lba & M32, at // self.lba >> 32, nbytes // self.lba - 1)

    def start_write(self, at, data, nsid=1, lane=None):
        return (lane or self.io).submit(self.write_sqe(at, len(data), nsid), data)

    def start_read(self, at, nbytes, nsid=1, lane=None):
        return (lane or self.io).submit(self.write_sqe(at, nbytes, nsid, 2), inlen=nbytes)

    def write(self, at, data, nsid=1):
        r = self.start_write(at, data, nsid)
        self.ok(self.io.wait(r))

    def read(self, at, nbytes, nsid=1):
        r = self.start_read(at, nbytes, nsid)
        self.ok(self.io.wait(r))
        return bytes(r.data)

    def flush(self, nsid=1):
        self.ok(self.io.command(sqe(0, nsid)))

    def counts(self):
        """(reads, writes) that the controller says it has executed."""
        smart = self.log(2, 512, 0xFFFFFFFF)
        return int.from_bytes(smart[64:80], "little"), int.from_bytes(smart[80:96], "little")

    def close(self):
        """Whether the target has answered each lane's Leave."""
        done = []
        if getattr(self, "io", None) and self.io in self.host.lanes:
            done.append(self.io.leave())
        if not self.admin.ended:
            self.set(0x14, 0x00464001)                   # normal shutdown
        done.append(self.admin.leave())
        return done

def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("interfaces"), p.add_argument("nqn")
    p.add_argument("--crc", action="store_true"), p.add_argument("--seed", type=int, default=1)
    for what in ("drop", "dup", "reorder"):
        p.add_argument("--" + what, type=float, default=0.0)
    p.add_argument("--trace", action="store_true"), p.add_argument("--vlan", type=int), p.add_argument("--ethertype", type=lambda x: int(x, 0), default=0x88B5)
    a = p.parse_args()
    rng, host = random.Random(a.seed), Host(a.interfaces.split(","), a.ethertype, a.vlan)
    if a.trace:
        host.taps.append(lambda d, port, h, b: print(d, port.name, TYPES[h.type], f"flags {h.flags} tok {h.token:x} sock {h.socket} reply {h.reply} link {h.link} body {h.body} seq {h.seq} base {h.base} ack {h.ack} delay {h.delay} cred {h.credits} sack {h.sack:x}", b[:32].hex()))
    for (port, mac, nqn), (endpoint, frame) in host.discover().items():
        print("offer", port.name, mac.hex(":"), nqn, "endpoint", endpoint.hex(), "frame", frame)
    for i, port in enumerate(host.ports):
        port.tx, port.rx = (Faults(a.drop, a.dup, a.reorder, a.seed * 10 + 2 * i + w) for w in (0, 1))
    d = Controller(host, DISCOVERY_NQN, crc=a.crc)
    log = d.log(0x70, 64 << 10)
    count = struct.unpack_from("<Q", log, 8)[0]
    print("discovery log:", count, "records", d.close())
    def text(at, nbytes):
        return log[at:at + nbytes].split(b"\0")[0].decode().strip()
    found = [(log[at], text(at + 256, 256), text(at + 512, 256), text(at + 32, 32)) for at in range(1024, 1024 * (count + 1), 1024)]
    print(*found, sep="\n")
    for mac, in {(mac,) for _, mac, _ in d.links}:           # TRTYPE, NQN, address, EtherType and VLAN
        service = f"{a.ethertype:04x}" + (f".{a.vlan}" if a.vlan else "")
        for name in (DISCOVERY_NQN, a.nqn):
            assert (0xF0, name, mac.hex(":"), service) in found, f"{name} at {mac.hex(':')} is not in the log"
    c = Controller(host, a.nqn, crc=a.crc)
    print("admin lane: slots", c.admin.slots, "pages", c.admin.pages, "piece", c.admin.piece, "cntlid", c.cntlid, "cap", hex(c.cap))
    idc = c.identify(1)
    print("controller", idc[4:24].decode().strip(), "|", idc[24:64].decode().strip(), "| MDTS", idc[77], "| I/O", idc[1792:1796].hex())
    print("namespace", c.namespace(), "blocks, nbytes each")
    c.io_lane()
    print("I/O lane: slots", c.io.slots, "pages", c.io.pages, "links", len(c.io.channels))
    before_counts = c.counts()
    for nbytes in (4096, 131072):
        for at in (0, 1 << 20, 3 << 20):
            data = rng.randbytes(nbytes)
            c.write(at, data)
            assert c.read(at, nbytes) == data, "what was read is not what was written"
    c.flush()
    c.keep_alive()
    after = c.counts()
    print("reads, writes executed:", after[0] - before_counts[0], after[1] - before_counts[1])
    print("left:", c.close(), "| faults", [(p.name, p.tx.did, p.rx.did) for p in host.ports] if a.drop + a.dup + a.reorder else "none")
    print("ok")

if __name__ == "__main__":
    main()
