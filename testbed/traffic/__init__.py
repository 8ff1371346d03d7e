"""What crosses the circuits: traffic models and the programs that play them."""
