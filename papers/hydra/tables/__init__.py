"""Tables that compare runs of the paper's scenarios with the paper; see `analysis.tables`."""
