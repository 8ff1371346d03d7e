"""*Examining the Hydra* (PoPETs 2023(3)), the paper behind the testbed.

Its authors are Pahl, Kaiser, Adamsky and Engel. Its numbers and statements are data here, beside
the tables that compare runs with them.
"""
