"""The page Runs: everything that was trained here, to search, name, continue, download and upload."""
