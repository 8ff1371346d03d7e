"""The figures of many runs, drawn from run directories; the report puts them in order.

Each module has one kind of figure: what is drawn is made by functions of its own, apart from how.
"""
