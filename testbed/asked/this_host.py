"""What a relay's work costs this host's processor, for the value `processor = "this host"`.

`./run.py calibrate --processor` measures it. It is kept as a scenario's own keys, so that a
scenario of one host can be carried out as it is on another.
"""

import json
import tomllib
from collections.abc import Mapping

from testbed.basics import cache

THIS_HOST = "this host"


def costs_of_this_host() -> dict[str, str]:
    """The keys of a processor, such as {"read": "1100 Mbit/s", "per_call": "900 ns"}.

    Raises:
        ValueError: they were not measured yet.
    """
    file = cache.cache_folder() / _FILE
    if not file.exists():
        raise ValueError("has no costs yet: measure them with ./run.py calibrate --processor")
    return {key: str(value) for key, value in tomllib.loads(file.read_text()).items()}


def keep_costs(costs: Mapping[str, str]) -> None:
    """Keep the costs of this host, instead of earlier ones."""
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in costs.items()]
    (cache.cache_folder() / _FILE).write_text("".join(lines))


_FILE = "this-host-processor.toml"
