"""The shared links of the live network, simulated by its consensuses. Starts no machine.

After SALSA of "Examining the Hydra" (Pahl, Kaiser, Adamsky, Engel; PoPETs 2023(3)), section 3.1.4
and Algorithm 1. `options` and `command` are what a user types, `cases` what is simulated,
`positions`, `drawing` and `links` how, `expected` the same in closed form, `simulation` all of it.
"""
