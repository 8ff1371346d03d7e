"""The emulated network: namespaces, links, addresses and routes."""
