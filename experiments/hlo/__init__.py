"""What HLO text says (pure): `text` reads one line, `groups` the devices that a collective spans."""
