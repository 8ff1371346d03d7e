"""The generator's log lines: TGen's leading fields, one write and so one system call a line.

What a line reports about a stream lives in `report`; reading lines back in `traffic.tgen_log`.
"""

from __future__ import annotations

import os
import time

from testbed.traffic.tgen.options import LOG_LEVELS


class Log:
    """Writes lines of at least a given level to a file descriptor.

    Args:
        level: the least important of 'error' … 'debug' that is still written.
        descriptor: where to, standard output unless told otherwise.
    """

    def __init__(self, level: str = "message", descriptor: int = 1) -> None:
        self._rank = LOG_LEVELS.index(level)
        self._descriptor = descriptor
        self.says_info = self._rank >= LOG_LEVELS.index("info")

    def write(self, level: str, where: str, text: str) -> None:
        """Write one line; `where` is 'module function', TGen's third and fourth bracket."""
        if LOG_LEVELS.index(level) > self._rank:
            return
        module, _, function = where.partition(" ")
        now_ns = time.time_ns()
        seconds, microseconds = now_ns // 10**9, now_ns % 10**9 // 1000
        local = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
        # Upstream gives a line of its source; ours would only mislead, so it is always 0.
        stamp = f"{local} {seconds}.{microseconds:06}"
        line = f"{stamp} [{level}] [{module}.py:0] [{function}] {text}\n"
        data = line.encode("utf-8", "replace")
        while data:
            data = data[os.write(self._descriptor, data) :]
