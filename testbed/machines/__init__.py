"""Machines that a plan runs on: a user-mode kernel in virtual time, or this host's own kernel."""
