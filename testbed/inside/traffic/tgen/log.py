"""The generator's log lines: TGen's leading fields, and one system call for each line.

`report` composes what a line says of a stream; `traffic.tgen_log` reads lines.
"""

from __future__ import annotations

import os
import time

from testbed.inside.traffic.tgen.options import LOG_LEVELS


class Log:
    """Writes lines of at least a given level to a file descriptor.

    Args:
        level: the least important level of 'error' … 'debug' that is written.
        descriptor: standard output by default.
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
        # Upstream writes a line number of its source. Ours would mislead, so it is always 0.
        stamp = f"{local} {seconds}.{microseconds:06}"
        line = f"{stamp} [{level}] [{module}.py:0] [{function}] {text}\n"
        data = line.encode("utf-8", "replace")
        while data:
            data = data[os.write(self._descriptor, data) :]
