"""A drawn network's cells and circuits from second to second, while its run measures.

The links that circuits share are the analysis's (`analysis.whole_networks`).
"""

import math

import polars


def reported_second(start_s: float) -> polars.Expr:
    """The second of measuring, counted from 1, that a row reports when it is over.

    Relays and generators count their own seconds, which begin some milliseconds before or after
    measuring does, and a relay's event may be as late.

    Args:
        start_s: when measuring began, as Unix time.
    """
    return (polars.col("time_s") - start_s).round().cast(polars.Int64)


def whole_seconds(duration_s: float) -> polars.DataFrame:
    """The seconds of measuring that all relays report, in the column `second`, from 1.

    Without the last one: recording ends in it, before all relays have told of it.
    """
    seconds = polars.int_range(1, math.ceil(duration_s), eager=True)
    return seconds.alias("second").to_frame()


def active_cells(queues: polars.DataFrame, start_s: float, duration_s: float) -> polars.DataFrame:
    """The rows of `queues` with cells in one of the `whole_seconds`, which `second` names."""
    return (
        queues.filter(polars.col("removed_cells") > 0)
        .with_columns(reported_second(start_s).alias("second"))
        .join(whole_seconds(duration_s), on="second", how="semi")
    )


def circuits_by_second(active: polars.DataFrame) -> polars.DataFrame:
    """How many circuits were active in each second that has any: `second`, `circuits`.

    An exit sends a circuit's cells towards the client, and has no queue behind it that it leads to:
    neither then nor later, as other relays have while the circuit is being built.

    Args:
        active: the rows of `active_cells`, of all relays.
    """
    at_exit = polars.col("next_queue").is_null().all().over("relay", "queue")
    circuits = polars.struct("relay", "queue").filter("at_exit").n_unique()
    return active.with_columns(at_exit=at_exit).group_by("second").agg(circuits=circuits)


def active_circuits(queues: polars.DataFrame, start_s: float, duration_s: float) -> list[int]:
    """How many circuits were active in each of the `whole_seconds`."""
    counted = circuits_by_second(active_cells(queues, start_s, duration_s))
    seconds = whole_seconds(duration_s).join(
        counted, on="second", how="left", maintain_order="left"
    )
    return [int(count) for count in seconds["circuits"].fill_null(0)]
