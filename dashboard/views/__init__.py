"""One folder a page. No view imports another view."""
