"""Runs a command in a terminal, closes the terminal, and prints the command's exit status.

    close_terminal.py [--alone] SECONDS TEXT COMMAND...

The terminal is closed when the command has written TEXT; an empty TEXT closes it once the command sleeps in the kernel.
With --alone the terminal does not control the command, so nothing sends it a signal: only reads and writes fail. A
command that goes on for SECONDS is killed, and the status is 1 with the word "survived". One that was ended by a signal
has 128 and its number as status, as in a shell.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time


def state(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1][0]
    except OSError:
        return "X"


def read(master, seconds):
    """Bytes that the command has written within that time; None at the end."""
    if not select.select([master], [], [], seconds)[0]:
        return b""
    try:
        return os.read(master, 65536) or None
    except OSError:
        return None


def reached(master, pid, text, end):
    """Waits until the text was written, or for an empty one until the command has slept for a moment."""
    written, asleep = b"", 0
    while time.monotonic() < end:
        more = read(master, 0.05)
        if more is None:
            break
        written += more
        if text and text.encode() in written:
            return True
        asleep = asleep + 1 if state(pid) == "S" and not more else 0
        if not text and asleep >= 10:
            return True
    sys.stderr.write(written.decode(errors="replace"))
    return False


def main(arguments):
    alone = arguments[0] == "--alone"
    seconds, text, *command = arguments[1:] if alone else arguments
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))

    def control():
        os.setsid()
        if not alone:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, preexec_fn=control)
    os.close(slave)
    # Generous: a slow machine is no fault of the command.
    is_ready = reached(master, process.pid, text, time.monotonic() + 60)
    os.close(master)
    try:
        status = process.wait(float(seconds) if is_ready else 0.1)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        print("survived" if is_ready else "never wrote the text")
        return 1
    print(128 - status if status < 0 else status)
    return 0 if is_ready else 1


sys.exit(main(sys.argv[1:]))
