"""The networks that scenarios run in: each file has one class, whose `build()` reads like a figure.

Their base class is in `testbed.asked.topology`. Scenarios set rates, delays and losses.
"""
