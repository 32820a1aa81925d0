"""From programs and trees back to `.upl` text: the printer and the formatter."""
