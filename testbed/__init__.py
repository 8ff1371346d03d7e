"""hydra-testbed: changes to Tor, tried in a private Tor network on emulated links."""

__version__ = "0.1.0"
