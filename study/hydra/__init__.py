"""*Examining the Hydra* (PoPETs 2023(3)), the paper behind the testbed.

Its authors are Pahl, Kaiser, Adamsky and Engel. Here its numbers are read, its statements are
judged, and tables compare runs with both.
"""
