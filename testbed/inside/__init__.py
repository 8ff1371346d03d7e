"""The code that runs in the machine: lab, Tor, traffic, probes, checks and the record."""
