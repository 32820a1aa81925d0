"""The text form `.upl`: its tree (`ast`) and its parser."""
