"""What a run records beside its transfers: round trips, sockets, the premise."""
