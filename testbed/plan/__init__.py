"""Everything that a run needs, as plain data."""
