"""The picture of a program in UPL's notation: what is drawn, where it stands, and how it is written down."""
