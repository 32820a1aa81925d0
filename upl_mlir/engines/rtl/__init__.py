"""The engine "rtl": loads, runs and judges programs on the simulated machine, whose hardware is `hw`."""
