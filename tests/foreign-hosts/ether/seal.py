"""Sealed frames for host.py: AES-GCM, DH-HMAC-CHAP (NVMe Base 8.3.4.5), and the keys of docs/reference/ethernet.md.
Pure Python: slow, for checks only.   seal.py IF[,IF..] NQN HOSTNQN KEYFILE [--group null|ffdhe2048] [--hash N] [--drop P]"""
import base64, hashlib, hmac, os, sys
from host import *

SBOX = bytearray(256)
def _tables():
    p = q = 1
    while True:                                           # p runs through the field, q through the inverses
        p = p ^ (p << 1) & 255 ^ (0x1B if p & 0x80 else 0)
        q ^= q << 1; q ^= q << 2; q ^= q << 4; q &= 255
        if q & 0x80: q ^= 9
        x = q ^ (q << 1 | q >> 7) & 255 ^ (q << 2 | q >> 6) & 255 ^ (q << 3 | q >> 5) & 255 ^ (q << 4 | q >> 4) & 255
        SBOX[p] = x ^ 0x63
        if p == 1: break
    SBOX[0] = 0x63
    t = []
    for s in SBOX:
        d = (s << 1 ^ (0x11B if s & 0x80 else 0)) & 255
        t.append(d << 24 | s << 16 | s << 8 | s ^ d)
    return [[(w >> 8 * r | w << 32 - 8 * r) & M32 for w in t] for r in range(4)]
T0, T1, T2, T3 = _tables()

class Gcm:
    def __init__(self, key):
        n = len(key) // 4
        w, rcon = list(struct.unpack(f">{n}I", key)), 1
        for i in range(n, 4 * (n + 7)):
            t = w[-1]
            sub = lambda v: SBOX[v >> 24] << 24 | SBOX[v >> 16 & 255] << 16 | SBOX[v >> 8 & 255] << 8 | SBOX[v & 255]
            if i % n == 0:
                t = sub((t << 8 | t >> 24) & M32) ^ rcon << 24
                rcon = (rcon << 1 ^ (0x11B if rcon & 0x80 else 0)) & 255
            elif n == 8 and i % n == 4:
                t = sub(t)
            w.append(w[i - n] ^ t)
        self.w, self.rounds = w, n + 6
        h, bits = int.from_bytes(self.block(bytes(16)), "big"), []
        for _ in range(128):
            bits.append(h)
            h = h >> 1 ^ (0xE1 << 120 if h & 1 else 0)
        self.m = []
        for i in range(16):
            row = [0] * 256
            for b in range(1, 256):
                low = b & -b
                row[b] = row[b ^ low] ^ bits[8 * i + 8 - low.bit_length()]
            self.m.append(row)

    def block(self, data):
        w = self.w
        a, b, c, d = (x ^ y for x, y in zip(struct.unpack(">4I", data), w))
        k = 4
        for _ in range(self.rounds - 1):
            a, b, c, d = (T0[a >> 24] ^ T1[b >> 16 & 255] ^ T2[c >> 8 & 255] ^ T3[d & 255] ^ w[k],
                          T0[b >> 24] ^ T1[c >> 16 & 255] ^ T2[d >> 8 & 255] ^ T3[a & 255] ^ w[k + 1],
                          T0[c >> 24] ^ T1[d >> 16 & 255] ^ T2[a >> 8 & 255] ^ T3[b & 255] ^ w[k + 2],
                          T0[d >> 24] ^ T1[a >> 16 & 255] ^ T2[b >> 8 & 255] ^ T3[c & 255] ^ w[k + 3])
            k += 4
        s = SBOX
        f = lambda p, q, r, t, i: (s[p >> 24] << 24 | s[q >> 16 & 255] << 16 | s[r >> 8 & 255] << 8 | s[t & 255]) ^ w[k + i]
        return struct.pack(">4I", f(a, b, c, d, 0), f(b, c, d, a, 1), f(c, d, a, b, 2), f(d, a, b, c, 3))

    def ctr(self, iv, data):
        stream = b"".join(self.block(iv + struct.pack(">I", i)) for i in range(2, 2 + -(-len(data) // 16)))[:len(data)]
        return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(data), "big")

    def tag(self, iv, aad, text):
        y, m = 0, self.m
        padded = aad + bytes(-len(aad) % 16) + text + bytes(-len(text) % 16) + struct.pack(">QQ", 8 * len(aad), 8 * len(text))
        for at in range(0, len(padded), 16):
            x = (y ^ int.from_bytes(padded[at:at + 16], "big")).to_bytes(16, "big")
            y = 0
            for i in range(16):
                y ^= m[i][x[i]]
        return (y ^ int.from_bytes(self.block(iv + b"\0\0\0\1"), "big")).to_bytes(16, "big")

    def seal(self, iv, aad, plain):
        text = self.ctr(iv, plain)
        return text + self.tag(iv, aad, text)

    def open(self, iv, aad, sealed):
        if len(sealed) < 16 or not hmac.compare_digest(self.tag(iv, aad, sealed[:-16]), sealed[-16:]):
            return None
        return self.ctr(iv, sealed[:-16])

class Seal:
    """Both directions of a sealed lane."""
    def __init__(self, hash, kh, ks, transcript, host_token, target_token):
        secret = hmac.digest(kh, b"roadtrain frames" + ks, hash)
        tail = hashlib.new(hash, transcript).digest() + struct.pack("<QQ", host_token, target_token) + b"\1"
        okm = lambda label, n: hmac.digest(secret, label + b"\0" + tail, hash)[:n]
        size = 16 if hash == "sha256" else 32
        self.out, self.into = Gcm(okm(b"host key", size)), Gcm(okm(b"target key", size))
        self.iv_out, self.iv_in = okm(b"host iv", 12), okm(b"target iv", 12)
        self.proof, self.peer_proof = okm(b"host leave", 16), okm(b"target leave", 16)
        self.number, self.opened, self.first, self.bad = 0, 0, set(), 0
        self.tops = {}

    def nonce(self, iv, number):
        return iv[:4] + (int.from_bytes(iv[4:], "big") ^ number).to_bytes(8, "big")

    def close(self, h, body):
        h.flags, h.number, h.bcrc, h.hcrc, h.body = h.flags & ~F_CRC | F_SEALED, self.number, 0, 0, len(body) + 16
        self.number += 1
        return self.out.seal(self.nonce(self.iv_out, h.number), h.pack(), body)

    def open(self, h, body):
        hcrc, h.hcrc = h.hcrc, 0
        plain = self.into.open(self.nonce(self.iv_in, h.number), h.pack(), body)
        self.bad += plain is None
        self.opened += plain is not None
        return plain

def ffdhe2048():
    e, term, n = 0, 1 << 2100, 0                           # RFC 7919: 2^2048 - 2^1984 + {[2^1918 * e] + 560316} * 2^64 - 1
    while term:
        e += term
        n += 1
        term //= n
    return (1 << 2048) - (1 << 1984) + ((e >> 2100 - 1918) + 560316) * (1 << 64) - 1

HASHES, GROUPS = {1: "sha256", 2: "sha384", 3: "sha512"}, {"null": 0, "ffdhe2048": 1}

class Sealed(Controller):
    """A controller that authenticates each queue and seals its lanes."""
    def __init__(self, host, nqn, hostnqn, keyline, group="null", hash=1, sc_c=0xF0, **options):
        kind, data = keyline.strip().split(":")[1:3]
        secret = base64.b64decode(data)[:-4]
        self.kh = secret if int(kind) == 0 else \
            hmac.digest(secret, hostnqn.encode() + b"NVMe-over-Fabrics", HASHES[int(kind)])
        self.group, self.hash_id, self.sc_c, self.tid = group, hash, sc_c, 0
        super().__init__(host, nqn, hostnqn, **options)

    def connect(self, lane, qid, cntlid):
        # as in Controller, but what was said is kept
        rest = struct.pack("<HHHBxI", 0, qid, lane.slots - 1, 0, self.kato if qid == 0 else 0)
        data = ((self.hostid + struct.pack("<H", cntlid)).ljust(256, b"\0") + self.nqn.encode().ljust(256, b"\0")
                + self.hostnqn.encode().ljust(256, b"\0")).ljust(1024, b"\0")
        result = self.ok(lane.command(fabrics(1, rest), data)) & M32
        said = hashlib.sha256(fabrics(1, rest)[40:52] + data + struct.pack("<I", result)).digest()
        self.authreq = result >> 16
        if self.authreq:
            self.authenticate(lane, said)
        return result

    def again(self, lane, *command, **options):
        """The command's end; Command Interrupted asks for another try, as while an earlier answer is not acknowledged."""
        for _ in range(100):
            r = lane.command(*command, **options)
            if r.status & 0x7FF != 0x21:
                break
            self.host.turn(0.02)
        self.ok(r)
        return r

    def send_message(self, lane, message):
        self.again(lane, fabrics(5, struct.pack("<BBBBI", 0, 1, 1, 0xE9, len(message))), message)

    def receive_message(self, lane, nbytes=4096):
        return bytes(self.again(lane, fabrics(6, struct.pack("<BBBBI", 0, 1, 1, 0xE9, nbytes)), inlen=nbytes).data)

    def authenticate(self, lane, said):
        self.tid += 1
        hash, size = HASHES[self.hash_id], hashlib.new(HASHES[self.hash_id]).digest_size
        negotiate = struct.pack("<BBHHBB", 0, 0, 0, self.tid, self.sc_c, 1) + struct.pack("<BxBB", 1, 1, 1) \
            + bytes([self.hash_id]).ljust(30, b"\0") + bytes([GROUPS[self.group]]).ljust(30, b"\0")
        self.send_message(lane, negotiate)
        got = self.receive_message(lane)
        if got[:2] != b"\1\1":
            raise Failed(f"instead of Challenge: {got[:16].hex()}")
        hl, hashid, group, dhlen, seq = struct.unpack_from("<BxBBHI", got, 6)
        challenge = got[:16 + hl + dhlen]
        c, gy = challenge[16:16 + hl], challenge[16 + hl:]
        assert (hl, hashid, group) == (size, self.hash_id, GROUPS[self.group])
        ks, gx = b"", b""
        if group:
            p, x = ffdhe2048(), random.SystemRandom().getrandbits(2040)
            gx = pow(2, x, p).to_bytes(256, "big")
            ks = hashlib.new(hash, pow(int.from_bytes(gy, "big"), x, p).to_bytes(256, "big")).digest()
            c = hmac.digest(ks, c, hash)
        response = hmac.digest(self.kh, c + struct.pack("<IHB", seq, self.tid, self.sc_c) + b"HostHost"
                               + self.hostnqn.encode() + b"\0" + self.nqn.encode(), hash)
        reply = struct.pack("<BBHHBBBBHI", 1, 2, 0, self.tid, hl, 0, 0, 0, len(gx), 0) + response + bytes(hl) + gx
        self.send_message(lane, reply)
        got = self.receive_message(lane)
        if got[:2] != b"\1\3":
            raise Failed(f"instead of Success1: {got[:16].hex()}")
        if self.sc_c == 0xF0:
            lane.seal = Seal(hash, self.kh, ks, said + negotiate + challenge + reply, lane.token, lane.peer_token)
        # Success2 only answers a target that has proved itself (RVALID)

def main():
    p = argparse.ArgumentParser()
    p.add_argument("interfaces"), p.add_argument("nqn"), p.add_argument("hostnqn"), p.add_argument("keyfile")
    p.add_argument("--group", default="null"), p.add_argument("--hash", type=int, default=1), p.add_argument("--crc", action="store_true")
    p.add_argument("--sc-c", type=lambda x: int(x, 0), default=0xF0)
    for what in ("drop", "dup", "reorder"):
        p.add_argument("--" + what, type=float, default=0.0)
    a = p.parse_args()
    host = Host(a.interfaces.split(","))
    for i, port in enumerate(host.ports):
        port.tx, port.rx = (Faults(a.drop, a.dup, a.reorder, 2 * i + w) for w in (0, 1))
    c = Sealed(host, a.nqn, a.hostnqn, open(a.keyfile).readline(), a.group, a.hash, a.sc_c, crc=a.crc, kato=120000)
    c.namespace()
    c.io_lane()
    n = c.counts()
    for nbytes in (4096, 12288):                            # the cipher is slow: the target would send more again and again
        data = random.randbytes(nbytes)
        c.write(1 << 20, data)
        assert c.read(1 << 20, nbytes) == data
    c.flush(), c.keep_alive()
    m = c.counts()
    print("authreq", c.authreq, "sealed", [(l.seal.number, l.seal.opened, l.seal.bad) if l.seal else None for l in (c.admin, c.io)],
          "reads, writes executed", m[0] - n[0], m[1] - n[1], "host dropped", c.io.dropped, c.admin.dropped, "left", c.close())

if __name__ == "__main__":
    g = Gcm(bytes(16))                                     # test case 2 of the GCM specification
    assert g.seal(bytes(12), b"", bytes(16)).hex() == "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf"
    main()
