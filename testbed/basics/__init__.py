"""Basics for all other rooms: errors, seeds, units, TOML files, and running programs."""
