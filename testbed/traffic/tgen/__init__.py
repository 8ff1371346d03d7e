"""A traffic generator that speaks TGen's configuration, log lines and wire protocol.

Run it as `python -m testbed.traffic.tgen CONFIG.graphml`; traffic models live one room up.
"""
