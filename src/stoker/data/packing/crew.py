"""The crew: processes that encode pieces, on all cores, and hand them back in order.

Processes and not threads: Pillow lets other threads run while it decodes, but not all the while, and on many cores that
is what counts. They are plain commands, since a pool of Python's would import the user's script anew in each of them,
and they write no files, so that one who is left behind by a kill does no harm.
"""

import os
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Self

from stoker.data.packing.encode import Encoding
from stoker.data.packing.pieces import Piece, worked
from stoker.data.packing.shards import Fragment
from stoker.errors import Problem

# Pieces on their way for each process: one in work, one waiting, and one whose turn has not come.
AHEAD = 3
COMMAND = "from stoker.data.packing.crew import serve; serve()"


class Hand:
    """One process of the crew."""

    def __init__(self, encoding: Encoding) -> None:
        # A file such as csv.py in the user's folder must not be taken for Python's.
        words = [sys.executable, "-P", "-c", COMMAND]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.tasks = Connection(os.dup(self.process.stdin.fileno()), readable=False)
        self.answers = Connection(os.dup(self.process.stdout.fileno()), writable=False)
        self.process.stdin.close()
        self.process.stdout.close()
        self.tasks.send(encoding)

    def worked(self, piece: Piece) -> Fragment:
        """Have a piece encoded."""
        try:
            self.tasks.send(piece)
            fragment: Fragment = self.answers.recv()
        except (EOFError, OSError):
            code = self.process.wait()
            if code != -signal.SIGKILL:
                raise RuntimeError(f"a process that encodes pictures ended with {code}") from None
            raise Problem(
                "a process that encodes pictures was killed, perhaps for want of memory",
                fix="run the same command again with fewer --workers: it goes on with what it has",
            ) from None
        return fragment

    def end(self) -> None:
        """Let the process go, at once."""
        self.process.kill()
        self.process.wait()
        self.tasks.close()
        self.answers.close()


class Crew:
    """Some processes, or for one worker this one."""

    def __init__(self, encoding: Encoding, *, workers: int) -> None:
        self.encoding, self.workers = encoding, workers
        self.hands: list[Hand] = []
        self.free: queue.SimpleQueue[Hand] = queue.SimpleQueue()
        self.threads = ThreadPoolExecutor(workers)

    def __enter__(self) -> Self:
        if self.workers > 1:
            self.hands = [Hand(self.encoding) for _ in range(self.workers)]
        for hand in self.hands:
            self.free.put(hand)
        return self

    def __exit__(self, *_: object) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)
        for hand in self.hands:
            hand.end()
        self.threads.shutdown(wait=True)

    def fragments(self, pieces: Iterable[Piece]) -> Iterator[Fragment]:
        """The pieces as fragments, in the order of the pieces. Takes a bounded number of pieces ahead."""
        if not self.hands:
            yield from (worked(piece, self.encoding) for piece in pieces)
            return
        pending: deque[Future[Fragment]] = deque()
        coming, problem = iter(pieces), None
        while True:
            try:
                piece = next(coming, None)
            except Problem as raised:
                # What came before it is still to be packed.
                problem = raised
                break
            if piece is None:
                break
            pending.append(self.threads.submit(self.handed, piece))
            while pending and (len(pending) > AHEAD * self.workers or pending[0].done()):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
        if problem is not None:
            raise problem

    def handed(self, piece: Piece) -> Fragment:
        """Have a piece encoded by whichever process is free."""
        hand = self.free.get()
        try:
            return hand.worked(piece)
        finally:
            self.free.put(hand)


def serve() -> None:
    """Encode what comes in on standard input until there is no more: what a process of the crew runs."""
    # Ctrl-C reaches the parent too, which then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with closing(Connection(os.dup(0), writable=False)) as tasks, closing(Connection(os.dup(1), readable=False)) as out:
        # Whatever prints must not print into the answers.
        os.dup2(2, 1)
        try:
            encoding: Encoding = tasks.recv()
            while True:
                out.send(worked(tasks.recv(), encoding))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return
