"""Studies: a folder for each question, whose page is made from its runs and never typed.

Runs are a batch's and tables are `analysis`'s and `papers`'; here a page is filled with them.
"""
