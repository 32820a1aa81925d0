"""By which ways values go: delays, buffers of a lane, streams between processes, ports."""
