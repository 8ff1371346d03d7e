"""A traffic generator that speaks TGen's configuration, log lines and wire protocol.

Run it as `python -m testbed.inside.traffic.tgen CONFIG.graphml`. The traffic models are in
`testbed.inside.traffic.models`.
"""
