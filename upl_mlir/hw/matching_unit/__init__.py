"""The matching unit: pairs the tokens of one activation in an associative memory."""
