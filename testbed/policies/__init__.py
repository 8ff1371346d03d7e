"""Policies: who decides which circuits a client has, and which of them carries a stream.

What a policy is asked, and what it can ask for, is `interface`'s. The control port is `tor`'s.
"""
