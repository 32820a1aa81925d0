"""What a machine did in a run: cycles, statistics, waveforms, what is left in the store, faults."""
