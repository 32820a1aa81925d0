"""`upl view --edit`: a program as picture and text in a browser; every act on the picture is an edit of the text.

`acts.py` has the edits, `places.py` what of the picture stands where in the text, `session.py` the file with its versions
and errors, `server.py` the page's server.  `page.js` and `edit.js` in `upl_mlir/picture/page` are the page.
"""
