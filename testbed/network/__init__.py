"""Networks as data: the live one as it is known, and those that a seed draws. It starts nothing."""
