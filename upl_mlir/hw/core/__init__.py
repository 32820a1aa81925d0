"""One core of the machine in RTL: matching unit with a hashed store, reducer, execution unit, send engine, queues."""
