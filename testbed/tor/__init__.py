"""Tor itself: how it is built, configured, bootstrapped and steered."""
