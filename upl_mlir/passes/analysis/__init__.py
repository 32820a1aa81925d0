"""Questions about programs that change nothing: relations of arrows, obligations, critical paths, streams."""
