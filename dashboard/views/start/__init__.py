"""Start here: the first page, which needs no model and leads to the others."""
