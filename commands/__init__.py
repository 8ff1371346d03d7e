"""The commands of `./run.py`, each in a file that is found by its name.

The docstring's first line is the command's help, `add_options` adds its options, and `run` does the
work and returns the exit status. Files that several commands share have names that begin with an
underscore. A new file is a new command (CONTRIBUTING.md).
"""
