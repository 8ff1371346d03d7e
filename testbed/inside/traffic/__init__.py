"""Traffic over the circuits: models, and the programs that generate it."""
