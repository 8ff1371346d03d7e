"""How FlashFlow measures relays, computed without a machine: teams, schedules, results, liars.

It follows Traudt, Jansen and Johnson, "FlashFlow: A Secure Speed Test for Tor" (ICDCS 2021), whose
sections the modules name. Only numbers are here: nothing is sent to any relay.
"""
