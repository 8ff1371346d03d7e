"""Statistics, tables and figures over many runs, from their run directories alone."""
