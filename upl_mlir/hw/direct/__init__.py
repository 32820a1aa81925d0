"""The organisation `direct`: the associative memory compiled away, where domains are known."""
