"""Probes for all that a run records beside its transfers: round trips, sockets, queues, links."""
