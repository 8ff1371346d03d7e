"""The requests that give an interface a link's shape, without a kernel."""

import pytest

from testbed.inside.lab.links import shape
from testbed.plan.network import Shape


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({}, 1),
        ({"bundles": True}, None),
        ({"bundles": True, "largest_bundle_segments": 2}, 2),
        ({"queue_in_sender": True}, None),
        ({"queue_in_sender": True, "bundles": True}, None),
        ({"queue_in_sender": True, "bundles": True, "largest_bundle_segments": 2}, 2),
    ],
)
def test_the_largest_bundle_that_an_interface_is_given(
    keys: dict[str, bool | int], told: int | None
) -> None:
    link = Shape.model_validate({"rate_bit_per_s": 10**8, **keys})
    asked = [request.get_attr("IFLA_GSO_MAX_SEGS") for request in shape(2, link, seed=1)]
    assert [segments for segments in asked if segments] == ([told] if told else [])
