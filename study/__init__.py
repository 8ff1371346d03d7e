"""Studies: a folder for each question, whose page is made from its runs and never typed.

Runs are a batch's and tables are `analysis`'s; here a page is filled with them. What holds any
runs against *Examining the Hydra* is in `study.hydra`.
"""
