"""Scenarios, variants and topologies as a user writes them, resolved into a plan."""
