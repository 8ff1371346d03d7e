"""Runs independent steps of the set-up at the same time.

`basics.steps` shows them. Standard library only.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from testbed.basics import steps

Result = TypeVar("Result")
Task = tuple[str, Callable[[], Result]]
"""A title, and the function to call."""


def side_by_side(tasks: Iterable[Task[Result]], progress: steps.Progress) -> list[Result]:
    """Run tasks at the same time: as many as there are cores, but at least two.

    Args:
        tasks: the tasks. A task may wait for an earlier one's product.
        progress: shows what is left.

    Returns:
        The tasks' results, in their order.

    Raises:
        Exception: whatever the first failed task raised. The others have been ended.
    """
    tasks = list(tasks)
    for title, _ in tasks:
        progress.expect(title)

    def begin(title: str, task: Callable[[], Result]) -> Result:
        progress.begun(title)
        return task()

    with ThreadPoolExecutor(max(2, len(os.sched_getaffinity(0)))) as pool:
        futures = [pool.submit(begin, *task) for task in tasks]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        except BaseException:
            steps.stopping.set()
            for future in futures:
                future.cancel()
            # Repeatedly, as a task may just be starting its next program.
            while wait(futures, timeout=0.1).not_done:
                steps.end_running()
            steps.stopping.clear()
            raise
    return [future.result() for future in futures]
