"""Tor in the machine: configured, started, bootstrapped and controlled."""
