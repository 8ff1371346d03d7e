"""Shared links of the live network, simulated from its consensuses without a machine.

It follows SALSA in "Examining the Hydra" (Pahl, Kaiser, Adamsky, Engel; PoPETs 2023(3)), section
3.1.4 and Algorithm 1. `cases` says what can be simulated; `simulation` does it, by way of
`positions`, `drawing` and `links`, or of the closed form in `expected`.
"""
