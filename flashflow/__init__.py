"""How FlashFlow measures relays: teams, schedules, results, liars.

It follows Traudt, Jansen and Johnson, "FlashFlow: A Secure Speed Test for Tor" (ICDCS 2021), whose
sections the modules name. Only numbers are here; `lab` has measurements carried out, in a machine
whose side is `testbed.inside.measurers`.
"""
