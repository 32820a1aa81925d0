"""What is between the caller's arrays and a program's ports (LANGUAGE 3.7)."""

from upl_mlir.host.arrays import MAX_ARRAY_BYTES, HostPort, bind_arrays, bind_parameters, dtype_of, host_ports, ragged
from upl_mlir.host.given import Given

__all__ = [
    "MAX_ARRAY_BYTES", "Given", "HostPort", "bind_arrays", "bind_parameters", "dtype_of", "host_ports", "ragged",
]  # fmt: skip
