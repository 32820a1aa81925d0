"""Area and clock of the hardware by open synthesis tools, for an ECP5 as the yardstick."""
