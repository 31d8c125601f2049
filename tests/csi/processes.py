"""Processes that tests kill and start again."""

import os
import subprocess
import time


class Process:
    """A process that is started again whenever it ends."""

    def __init__(self, name, words, environment, ready, work):
        self.name, self.words, self.ready, self.work = name, words, ready, work
        self.environment = {**os.environ, **environment}
        self.process = None

    def start(self):
        log = open(f"{self.work}/{self.name}.log", "ab")
        at = log.tell()
        self.process = subprocess.Popen(self.words, env=self.environment, stdout=log, stderr=log)
        log.close()
        with open(f"{self.work}/.pids", "a", encoding="utf-8") as pids:
            pids.write(f"{self.process.pid}\n")
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with open(f"{self.work}/{self.name}.log", "rb") as text:
                text.seek(at)
                if self.ready in text.read():
                    return
            assert self.process.poll() is None, f"{self.name} has ended"
            time.sleep(0.02)
        raise AssertionError(f"{self.name} does not get ready")

    def kill(self):
        self.process.kill()
        self.process.wait()
