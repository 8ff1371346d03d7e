"""FlashFlow's measurers: they fill relays with cells, which these decrypt and send back.

`circuit` is one connection with its measurement circuit, `team` all of those that measure at once,
and `measuring` what a machine carries out. The relays' side is tor-configs/patches/measured.patch.
"""
