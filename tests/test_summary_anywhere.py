"""A summary has the same bytes in every process, whatever hashes of texts and number of cores."""

import os
import subprocess
import sys

import pytest

from testbed.asked.plans import make_plan
from testbed.basics.toml_file import PROJECT
from testbed.results.summarising import traffic_models

FILES = "studies/hydra/Files.toml"

MODELS = f"""
from testbed.asked.plans import make_plan
from testbed.results.summarising import traffic_models
print(traffic_models(make_plan("{FILES}", "vanilla")))
"""

FAIRNESS = """
import polars
from testbed.results.summarising import fairness
values = [1 / (1 + 7919 * number % 1009) for number in range(5000)]
names = [f"client{1 + number % 7}" for number in range(5000)]
table = polars.DataFrame({"client": names, "throughput_mb_per_s": values})
print([fairness(table, sorted(set(names))) for _ in range(5)])
"""

BUILD_TIMES = """
from types import SimpleNamespace
import polars
from testbed.results.circuits_of_clients import build_times_ms
rows = [
    {"client": f"client{number % 50}", "circuit": str(number), "status": status, "time_s": time_s}
    for number in range(5000)
    for status, time_s in (("LAUNCHED", 1.0), ("BUILT", 1.1 + 1 / (1 + 7919 * number % 1009)))
]
circuits = polars.DataFrame(rows).with_columns(for_streams=True)
times = build_times_ms(SimpleNamespace(circuits=circuits), 0.0)
print(times.mean(), times.std())
"""


@pytest.mark.parametrize(
    ("program", "variable", "values"),
    [
        (MODELS, "PYTHONHASHSEED", "1234"),
        (FAIRNESS, "POLARS_MAX_THREADS", "124"),
        (BUILD_TIMES, "POLARS_MAX_THREADS", "1248"),
    ],
)
def test_another_process_gives_the_same(program: str, variable: str, values: str) -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=PROJECT,
            env=os.environ | {variable: value},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for value in values
    }
    assert len(found) == 1


def test_the_model_under_test_is_the_first() -> None:
    models = traffic_models(make_plan(FILES, "vanilla"))
    assert models[0] == "page"
    assert sorted(models) == ["page", "perf-1mb", "perf-50kb", "perf-5mb"]
