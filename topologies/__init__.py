"""The networks that scenarios run in: one file, one class, whose `build()` reads like the figure.

What all topologies share is in `testbed.topology`; rates, delays and losses are the scenarios'.
"""
