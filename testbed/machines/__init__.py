"""Where a plan runs: the user-mode kernel in virtual time, or this host's own kernel."""
