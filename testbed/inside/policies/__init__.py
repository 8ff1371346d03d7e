"""Policies, which decide on a client's circuits, and on the circuit of each stream.

`inside.policies.interface` says what a policy is asked and can ask for. `inside.tor` talks to Tor.
"""
