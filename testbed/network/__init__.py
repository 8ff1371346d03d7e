"""Networks as data: what consensuses say of the live one. Nothing here starts a machine."""
