"""The emulated network: nodes, links, their calibration."""
