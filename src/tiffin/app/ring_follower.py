"""Follows the keyring's file: a slice at a time, over replacements, with what was read in force."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from tiffin.gateway.keyring import Keyring, RingReader, head_of
from tiffin.telemetry import log
from tiffin.types.keyring import MAX_LINE_BYTES, Damaged

CHUNK_BYTES = 65_536
LOOK_EVERY_S = 0.2
REST_S = 0.001


class RingFollower:
    """Keeps a keyring as its file says. Call `step` often, and at once where it says so.

    A file that replaces another is read beside what is in force, and takes its place when it was
    read to its end; where it only tells again what is known, reading goes on behind that.
    """

    def __init__(self, path: Path, keyring: Keyring) -> None:
        self._path = path
        self.keyring = keyring
        self._fd = -1
        self._inode = (0, 0)
        self._epoch = ""
        self._reader = RingReader()
        self._chunk_bytes = CHUNK_BYTES
        keyring.whole = False

    def step(self) -> bool:
        """Read one slice; whether there may be more to read at once."""
        try:
            return self._step()
        except Damaged as failure:
            self._turn_away(str(failure))
        except OSError as failure:  # it is read anew, from its beginning, when it can be
            self._fail(str(failure))
            self._inode = (0, 0)
        return False

    def close(self) -> None:
        """Stop following; what was read stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _step(self) -> bool:
        if self._fd >= 0:
            chunk = os.pread(self._fd, self._chunk_bytes, self._reader.offset)
            if self._reader.feed(chunk):
                self._chunk_bytes = CHUNK_BYTES
                return True
            if len(chunk) == self._chunk_bytes:  # a line that is longer than usual
                self._chunk_bytes = min(2 * self._chunk_bytes, MAX_LINE_BYTES)
                return True
            self._arrive()
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            if self._fd < 0:  # nobody has made a key yet
                self._arrive()
            return False
        if (stat.st_dev, stat.st_ino) == self._inode:
            return False
        return self._open()

    def _arrive(self) -> None:
        """All that there is has been read: that is in force now."""
        keyring = self.keyring
        if keyring.keys is not self._reader.keys or not keyring.whole or keyring.fault:
            keyring.keys = self._reader.keys
            keyring.whole = True
            keyring.fault = ""
            log.info("keyring read", keys=len(keyring.keys), serial=self._reader.serial)

    def _open(self) -> bool:
        fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = head_of(os.pread(fd, CHUNK_BYTES, 0))
        except BaseException:
            os.close(fd)
            raise
        if found is None:
            os.close(fd)
            return False
        head, size = found
        if head.epoch == self._epoch and head.serial == self._reader.serial and self._fd >= 0:
            self._reader.go_on(head, size)
        else:
            self._reader = RingReader()
            self._reader.begin(head, size)
        self.close()
        stat = os.fstat(fd)
        self._fd, self._inode, self._epoch = fd, (stat.st_dev, stat.st_ino), head.epoch
        return True

    def _turn_away(self, reason: str) -> None:
        """Nothing more comes from this file; another may take its place."""
        self._fail(reason)
        with suppress(OSError):
            stat = self._path.stat()
            self._inode = (stat.st_dev, stat.st_ino)

    def _fail(self, reason: str) -> None:
        """What is in force stays, what was read beside it doesn't count."""
        self.close()
        self._epoch = ""
        self._reader = RingReader()
        self._reader.keys = self.keyring.keys
        if self.keyring.fault != reason:
            self.keyring.fault = reason
            log.error("the keyring can't be read", reason=reason, path=str(self._path))


async def follow(ring: RingFollower) -> None:
    """Keep a keyring as its file says, until cancelled; others run between any two slices.

    Who waits for keys at the start gets them soon; later those who are served go first.
    """
    while True:
        rest_s = LOOK_EVERY_S
        if ring.step():
            rest_s = REST_S if ring.keyring.whole else 0.0
        await asyncio.sleep(rest_s)
