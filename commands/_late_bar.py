"""A progress bar for work that is usually quick."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

_PATIENCE_S = 2.0
"""How long no bar is shown."""


@contextmanager
def late_bar(messages: Console, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar if the context lasts longer than two seconds.

    Yields:
        A function to call with the amount done so far.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    progress = Progress(
        *columns, console=messages, transient=True, disable=not messages.is_terminal
    )
    task = progress.add_task(what, total=total)
    begin = time.monotonic()

    def tell(done: int) -> None:
        progress.update(task, completed=done)
        if not progress.live.is_started and time.monotonic() - begin > _PATIENCE_S:
            progress.start()

    try:
        yield tell
    finally:
        if progress.live.is_started:
            progress.stop()
