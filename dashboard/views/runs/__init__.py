"""The Runs page: everything that was trained here, to name, search, go on with, take away and bring in."""
