"""Distances on the Earth."""

import math

EARTH_RADIUS_KM = 6371.0


def great_circle_km(one: tuple[float, float], other: tuple[float, float]) -> float:
    """The distance between two places along the great circle (haversine formula).

    Args:
        one, other: latitude and longitude of each in degrees.
    """
    (latitude, longitude), (other_latitude, other_longitude) = one, other
    latitudes = math.radians(latitude), math.radians(other_latitude)
    apart = math.radians(longitude - other_longitude)
    half_chord = math.hypot(
        math.sin((latitudes[0] - latitudes[1]) / 2),
        math.sqrt(math.cos(latitudes[0]) * math.cos(latitudes[1])) * math.sin(apart / 2),
    )
    return 2 * EARTH_RADIUS_KM * math.asin(min(half_chord, 1.0))
