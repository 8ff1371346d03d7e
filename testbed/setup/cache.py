"""Where the cache folder is: environment, sources, builds and logs live below it.

What is in it and how it gets there is the other modules' business. Standard library only.
"""

import os
import time
from pathlib import Path

from testbed.errors import InputError


def cache_folder() -> Path:
    """Return the cache folder, made if need be.

    `$HYDRA_CACHE`, else `hydra-testbed` in `$XDG_CACHE_HOME`, else in `~/.cache`.

    Raises:
        InputError: the folder can't be made or is not writable.
    """
    chosen = os.environ.get("HYDRA_CACHE")
    if chosen:
        folder = Path(chosen).expanduser().absolute()
    else:
        parent = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(parent) / "hydra-testbed"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cache folder {folder}: {error.strerror}: set HYDRA_CACHE to a folder you can write to"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(
            f"cache folder {folder}: not writable: set HYDRA_CACHE to a folder you can write to"
        )
    return folder


def subfolder(name: str) -> Path:
    """Return a folder of the cache, made if need be."""
    folder = cache_folder() / name
    folder.mkdir(exist_ok=True)
    return folder


def new_log(name: str) -> Path:
    """Return the path of a log file for a step called `name`; the time of day is in its name."""
    moment = time.strftime("%Y%m%d-%H%M%S")
    return subfolder("logs") / f"{name}-{moment}-{os.getpid()}.log"
