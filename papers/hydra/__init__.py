"""*Examining the Hydra* (PoPETs 2023(3)), the paper from which the testbed comes.

Its authors are Pahl, Kaiser, Adamsky and Engel. Its numbers and sentences are data here, beside
the tables that hold runs against them.
"""
