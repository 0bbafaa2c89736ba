"""The page Report: views that were added from any page, to be ordered, described and taken as one file."""
