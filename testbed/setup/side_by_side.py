"""Steps of the set-up side by side: what doesn't depend on each other doesn't wait for each other.

What is shown of them is in steps. Standard library only.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from testbed.setup import steps

Result = TypeVar("Result")
Task = tuple[str, Callable[[], Result]]
"""A title, and what is carried out under it."""


def side_by_side(tasks: Iterable[Task[Result]], progress: steps.Progress) -> list[Result]:
    """Carry out tasks at the same time, as many as there are cores but two at least.

    Args:
        tasks: what to carry out. One may wait for what one before it makes.
        progress: shows what is left.

    Returns:
        What they returned, in their order.

    Raises:
        Exception: whatever the first one raised that failed. The others have been ended.
    """
    tasks = list(tasks)
    for title, _ in tasks:
        progress.expect(title)

    def carry_out(title: str, task: Callable[[], Result]) -> Result:
        progress.begun(title)
        return task()

    with ThreadPoolExecutor(max(2, len(os.sched_getaffinity(0)))) as pool:
        futures = [pool.submit(carry_out, *task) for task in tasks]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        except BaseException:
            steps.stopping.set()
            for future in futures:
                future.cancel()
            # Again and again: a task may just be starting its next program.
            while wait(futures, timeout=0.1).not_done:
                steps.end_running()
            steps.stopping.clear()
            raise
    return [future.result() for future in futures]
