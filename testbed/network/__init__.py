"""Networks as data: what is known of the live one, and what a seed draws. It starts nothing."""
