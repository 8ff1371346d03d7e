"""MCTor: whether each client's streams were spread over its parallel circuits by the rule."""

from testbed.basics.check import Check
from testbed.inside.checks import Running
from testbed.inside.tor.policy_circuits import PolicyCircuits


async def after(running: Running) -> list[Check]:
    """Compare the numbers of streams, if the rule is to take the circuits in turn.

    Another check sees that each stream ran on the circuit that the rule chose (streams on other
    circuits). A stream that was not opened may be missing on any of the circuits.
    """
    plan = running.plan
    if plan.tor.parallel_circuits == 1:
        return []
    uniform = plan.tor.stream_rule == "uniform"
    spread, wrong = [], []
    for each in running.circuits:
        assert isinstance(each, PolicyCircuits)
        counts = [each.opened[circuit.number] for circuit in each.circuits()]
        spread.append(f"{each.client}: {' '.join(map(str, counts))}")
        unopened = each.given.total() - each.opened.total()
        is_whole = len(counts) == plan.tor.parallel_circuits
        if not is_whole or max(counts) - min(counts) > 1 + unopened:
            wrong.append(each.client)
    return [
        Check(
            name="streams on each circuit",
            expected="as many on each, or one more" if uniform else "by addresses and ports",
            observed="; ".join(spread),
            ok=not wrong if uniform else None,
        )
    ]
